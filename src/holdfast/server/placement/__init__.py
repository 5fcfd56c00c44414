"""Placement of sessions: which store each session is in, queries over several stores, unavailable
stores, and the sessions that are in use."""
