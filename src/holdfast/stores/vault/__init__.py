"""Encryption at rest: a store before any other, and the keys it goes by."""

from .keys import Vault

__all__ = ["Vault"]
