"""Encryption at rest: a store in front of any other, and its keys."""

from .keys import Vault

__all__ = ["Vault"]
