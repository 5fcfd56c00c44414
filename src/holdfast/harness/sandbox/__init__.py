"""Where a session's tools read, write and run: the port, and the places there are."""

from .docker import DockerSandbox, Mount
from .local import LocalSandbox
from .port import Command, Entry, NoSandbox, Place, Ran, Sandbox

__all__ = [
    "Command",
    "DockerSandbox",
    "Entry",
    "LocalSandbox",
    "Mount",
    "NoSandbox",
    "Place",
    "Ran",
    "Sandbox",
]


def __dir__() -> list[str]:
    return sorted(__all__)
