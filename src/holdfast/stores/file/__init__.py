"""`FileStore`, a store in a folder of JSON lines."""

from .store import FileStore

__all__ = ["FileStore"]
