"""A driver is killed, aborted, or loses its store, at every place where it writes."""
