"""Finds the store of each session, queries several stores, handles unavailable stores, and tracks
the sessions in use."""
