"""The tables that SQLite and PostgreSQL share, and the operations on them."""
