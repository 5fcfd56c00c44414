"""Plain values that sessions return and clients receive. No I/O."""
