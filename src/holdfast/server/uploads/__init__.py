"""Uploads by clients: agents, files and environment variables."""
