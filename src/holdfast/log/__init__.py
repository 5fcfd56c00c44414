"""The pure core: events, their encoding, and the state that they add up to. No I/O, no clock."""
