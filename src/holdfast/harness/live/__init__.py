"""The logs that are open in this process: their state, subscribers, drafts and incoming
messages."""
