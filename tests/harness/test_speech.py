"""Text in flight: joined by its offset, and over when its message is in the log."""

from __future__ import annotations

import pytest
from msgspec import Raw

from holdfast.events import Event
from holdfast.harness.live.drafts import MessagesInFlight
from holdfast.values.delta import Delta


def told(kind: str, id: str) -> Event:
    return Event(kind=kind, data=Raw(b"{}"), id=id, seq=1, at=1)


def test_text_has_its_place_in_the_message() -> None:
    speech = MessagesInFlight()
    assert speech.say("m", "Hel") == Delta("m", 0, "Hel", False)
    assert speech.say("m", "lo") == Delta("m", 3, "lo", False)
    assert speech.say("m", "hm", thought=True) == Delta("m", 0, "hm", True)
    assert str(speech.flying["m"].text) == "Hello"


@pytest.mark.parametrize("kind", ["message.completed", "message.interrupted"])
def test_text_that_comes_after_its_message_is_not_told(kind: str) -> None:
    speech = MessagesInFlight()
    speech.say("m", "Hello")
    speech.arrived(told(kind, "m"))
    assert speech.say("m", "Hello") is None
    assert (speech.flying, speech.now()) == ({}, None)
    assert speech.say("next", "Hi") == Delta("next", 0, "Hi", False)
