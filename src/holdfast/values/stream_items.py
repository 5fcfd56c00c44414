"""The items of a stream: events of the log, text in flight, and two marks."""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct

from ..log.events import Event
from .delta import Delta


class CaughtUp(Struct, frozen=True):
    """A mark in a stream: the items before it are past, those after it are live."""

    log: str
    head: int


class Trouble(Struct, frozen=True, tag="trouble"):
    """A failure that is not in the log; it is retried or given up."""

    code: str
    problem: str


Item: TypeAlias = Event | Delta | CaughtUp | Trouble
