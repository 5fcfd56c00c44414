"""One live conversation and its parts."""
