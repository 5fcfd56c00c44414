"""The state of a log, computed from its events: the public names of `holdfast.log.state`."""

from .log.state import *
from .log.state import __all__


def __dir__() -> list[str]:
    return sorted(__all__)
