"""The declaration of an agent, its settings, sub-agents, sources of tools and user state."""
