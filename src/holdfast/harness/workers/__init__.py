"""The workers of a harness: drivers, recovery and signals."""
