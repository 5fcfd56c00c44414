"""One session, driven by any verbs from two processes at once."""
