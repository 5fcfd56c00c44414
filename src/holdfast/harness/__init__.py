"""The harness: agents, tools and the loop that survives anything."""
