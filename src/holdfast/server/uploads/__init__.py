"""What clients bring: agents, files and variables."""
