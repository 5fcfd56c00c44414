"""The checks of the suite with heavy counts."""
