"""A live session and its parts."""
