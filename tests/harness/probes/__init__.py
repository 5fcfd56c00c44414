"""Probes of tools, and results too large for a prompt."""
