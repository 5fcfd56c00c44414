"""Streams of sessions: what a reader is sent, how fast, and until when."""
