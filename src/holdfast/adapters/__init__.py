"""Implementations of other SDKs' session interfaces on any Holdfast store. Each adapter needs its
own optional package."""
