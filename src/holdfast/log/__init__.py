"""The pure core: events, their encoding, and what they add up to. No I/O, no clock."""
