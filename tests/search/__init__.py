"""The index of texts."""
