"""Tables and operations that the SQLite and PostgreSQL stores share."""
