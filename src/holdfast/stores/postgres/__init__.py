"""The PostgreSQL store: one schema of tables, any number of processes and machines."""

from .schema import schema_state
from .store import PostgresStore

__all__ = ["PostgresStore", "schema_state"]
