"""Handles the agents, files and environment variables that clients upload."""
