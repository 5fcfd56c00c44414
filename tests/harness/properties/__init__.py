"""Random conversations, cut anywhere."""
