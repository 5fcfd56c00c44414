"""How fast Holdfast is beside floors of the same shape and the sessions of agent SDKs.

Run it with `python -m bench` from the root of the repository; see `bench/README.md`.
"""
