"""The parts of a session: its verbs, its views, its threads."""
