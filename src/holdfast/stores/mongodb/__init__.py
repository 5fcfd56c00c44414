"""The MongoDB store: one head document per log, changed by compare-and-set."""

from .schema import schema_state
from .store import MongoStore

__all__ = ["MongoStore", "schema_state"]
