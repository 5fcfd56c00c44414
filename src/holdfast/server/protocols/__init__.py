"""Protocols of other front ends: each is a translation of the log, without state of its own."""
