"""The harness: agents, tools, and the durable run loop."""
