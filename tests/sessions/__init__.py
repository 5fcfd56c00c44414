"""The life cycle of sessions, on every store."""
