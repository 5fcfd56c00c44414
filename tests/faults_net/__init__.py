"""What becomes of calls when the network or the database server fails."""
