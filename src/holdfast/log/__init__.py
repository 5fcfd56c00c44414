"""The pure core: events, their encoding, and the state computed from them. No I/O, no clock."""
