"""Uploads of clients: agents, files and variables."""
