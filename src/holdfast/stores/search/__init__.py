"""Full-text search over the sessions of a store."""

from .scan import no_index, scan

__all__ = ["no_index", "scan"]
