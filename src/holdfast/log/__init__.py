"""The pure core: events, their encoding, and the state that they fold to. No I/O, no clock."""
