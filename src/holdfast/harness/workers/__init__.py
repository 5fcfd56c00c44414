"""The background work of a harness: drivers, recovery of unfinished runs, and termination
signals."""
