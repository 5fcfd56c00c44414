"""The server, from its settings to its answers."""
