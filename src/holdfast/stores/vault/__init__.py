"""Encryption at rest: a store that wraps any other store, and its keys."""

from .keys import Vault

__all__ = ["Vault"]
