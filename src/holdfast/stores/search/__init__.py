"""Full-text search over the sessions of a store."""

from .indexer import ChangedLogs
from .scan import no_index, scan
from .text_search import TextSearch

__all__ = ["ChangedLogs", "TextSearch", "no_index", "scan"]
