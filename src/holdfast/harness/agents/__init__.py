"""Agents: their declaration, settings, sub-agents, tool sources and user state."""
