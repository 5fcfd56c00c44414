"""Live sessions: their methods, and attributes such as the queue, forks and pending items."""
