"""Event kinds and their payloads, for programs that read or write logs."""

from .log.events import *
from .log.events import __all__


def __dir__() -> list[str]:
    return sorted(__all__)
