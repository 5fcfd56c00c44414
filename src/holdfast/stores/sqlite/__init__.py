"""`SqliteStore`, a store in one SQLite file."""

from .store import SqliteStore

__all__ = ["SqliteStore"]
