"""A session of many parts, whose process is killed at any of its writes."""
