"""Implementations of other SDKs' session interfaces on any Holdfast store. Each needs its own
extra."""
