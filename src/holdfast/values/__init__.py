"""What sessions return and clients see: plain values without I/O."""
