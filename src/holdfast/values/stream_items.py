"""The items of a stream: events of the log, text in flight, and two marks."""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct

from ..log.events import Event
from .delta import Delta


class CaughtUp(Struct, frozen=True):
    """In `follow`: what came before was history, what comes next is live."""

    log: str
    head: int


class Trouble(Struct, frozen=True, tag="trouble"):
    """Something went wrong beside the log, and is being tried again or given up."""

    code: str
    problem: str


Item: TypeAlias = Event | Delta | CaughtUp | Trouble
