"""Placement of sessions: the store of each session, queries over several stores, unavailable
stores, and the sessions that are in use."""
