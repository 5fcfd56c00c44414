"""Streams of a server: what a reader is given, and how it leaves."""
