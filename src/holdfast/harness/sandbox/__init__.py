"""Sandboxes, in which a session's tools read and write files and run commands: the interface, and
implementations for a local folder and Docker."""

from .docker import DockerSandbox, Mount
from .local import LocalSandbox
from .port import Command, DirectoryEntry, NoSandbox, Place, Ran, Sandbox

__all__ = [
    "Command",
    "DirectoryEntry",
    "DockerSandbox",
    "LocalSandbox",
    "Mount",
    "NoSandbox",
    "Place",
    "Ran",
    "Sandbox",
]


def __dir__() -> list[str]:
    return sorted(__all__)
