"""Which process drives which log: drivers, recovery, signals."""
