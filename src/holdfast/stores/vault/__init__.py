"""Encryption at rest: a store that encrypts the content of any other store, and its keys."""

from .keys import Vault

__all__ = ["Vault"]
