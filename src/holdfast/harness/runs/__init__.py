"""What is done about a log: decide, perform, again, under a lease."""
