"""The live view of an open log in one process: its state, its subscribers, and its input."""
