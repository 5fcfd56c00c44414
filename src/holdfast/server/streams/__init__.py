"""Streams of sessions as server-sent events, with backpressure."""
