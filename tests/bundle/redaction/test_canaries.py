"""Nothing that is secret, local or personal gets out, wherever it stands; and what comes out is
still what it was."""

from __future__ import annotations

import json
import logging
from itertools import islice
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.bundle.redaction.manifest import Mode
from holdfast.bundle.redaction.scrub import Scrub, ScrubConfig
from holdfast.events import KINDS, Event
from holdfast.log.codec import check_event, typed

from .canaries import KNOWN, LOCAL, PERSON, PERSONAL_TEXTS, SECRETS, Canary
from .places import every_place

CONFIG = ScrubConfig(secrets=(KNOWN,))

# Each canary is in every fourth place, beginning one place after the canary before it: so every
# place is tried with a quarter of them. With `--hypothesis-profile soak` all are in all places.
STEP = 4 if settings().max_examples < 1_000 else 1


def named(canary: Canary) -> str:
    return canary.kind


def written(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def shows(canary: Canary, text: str) -> bool:
    forms = {json.dumps(canary.needle, ensure_ascii=plain)[1:-1] for plain in (True, False)}
    return any(form in text for form in {canary.needle, *forms})


def scrubbed(
    canary: Canary, config: ScrubConfig, mode: Mode = "sanitized", *, begin: int = 0, step: int = 1
) -> list[Event]:
    """Every place, or every `step`-th, scrubbed; each event still is what it was."""
    scrub, found = Scrub(mode, config), []
    for n, event in islice(enumerate(every_place(canary.text)), begin, None, step):
        kept = scrub.event(event, f"$.threads[0].events[{n}]")
        assert not shows(canary, written(kept)), (event.kind, kept)
        assert (typed(kept) is None) == (typed(event) is None), kept
        assert (kept.seq, kept.at, kept.v) == (event.seq, event.at, event.v)
        check_event(kept)
        found.append(kept)
    assert not shows(canary, written(scrub.manifest()))
    assert scrub.manifest().totals
    return found


def test_there_are_enough_of_them() -> None:
    assert len({canary.kind for canary in SECRETS}) >= 60
    assert len({canary.kind for canary in PERSONAL_TEXTS}) >= 20
    assert {event.kind for event in every_place("x")} >= set(KINDS)


@pytest.mark.parity("user-demand", 57)
@pytest.mark.parity("harn-bundle", 33, 34, 37, 39, 40, 55)
@pytest.mark.parametrize("canary", SECRETS, ids=named)
def test_no_secret_survives_anywhere(canary: Canary) -> None:
    scrubbed(canary, CONFIG, begin=SECRETS.index(canary) % STEP, step=STEP)


@pytest.mark.parity("harn-bundle", 37)
@pytest.mark.parametrize("canary", SECRETS, ids=named)
def test_our_own_rules_find_them_without_the_detector(canary: Canary) -> None:
    scrub = Scrub("sanitized", ScrubConfig(secrets=(KNOWN,), detector=False))
    assert not shows(canary, scrub.text(canary.text, "$"))
    assert scrub.manifest().detectors == []


@pytest.mark.parity("harn-bundle", 44, 59)
@pytest.mark.parametrize("canary", LOCAL, ids=named)
def test_no_local_path_survives_anywhere(canary: Canary) -> None:
    scrubbed(canary, CONFIG)
    kept = Scrub("sanitized").text(canary.text, "$")
    name = canary.text.split()[-1].replace("\\", "/").rpartition("/")[2].rpartition(":")[0] or "a"
    assert name in kept, "the name of the file stays"


@pytest.mark.parametrize("canary", PERSONAL_TEXTS, ids=named)
def test_no_personal_text_survives_once_it_is_opted_into(canary: Canary) -> None:
    config, begin = ScrubConfig(people=(PERSON,), personal=("all",)), PERSONAL_TEXTS.index(canary)
    scrubbed(canary, config, begin=begin % STEP, step=STEP)
    kinds = () if canary.kind == "person" else (canary.kind,)
    alone = Scrub("sanitized", ScrubConfig(people=(PERSON,), personal=kinds))
    assert not shows(canary, alone.text(canary.text, "$"))
    assert list(alone.manifest().totals) == [canary.kind]
    assert shows(canary, Scrub("sanitized").text(canary.text, "$")), "not without being asked"


@pytest.mark.parity("user-demand", 63)
@pytest.mark.parity("harn-bundle", 49)
@pytest.mark.parametrize("canary", [*SECRETS, *LOCAL, *PERSONAL_TEXTS], ids=named)
def test_a_second_pass_changes_nothing(canary: Canary) -> None:
    config = ScrubConfig(secrets=(KNOWN,), people=(PERSON,), personal=("all",))
    first, again = Scrub("sanitized", config), Scrub("sanitized", config)
    text = first.text(canary.text, "$")
    value = first.value({canary.text: [canary.text], "deep": {"a": canary.text}}, "$")
    assert again.text(text, "$") == text
    assert again.value(value, "$") == value
    assert again.manifest().entries == []


WHOLE = Scrub("sanitized", ScrubConfig(secrets=(KNOWN,), personal=("all",)))
pieces = st.sampled_from([c.text for c in (*SECRETS, *LOCAL, *PERSONAL_TEXTS) if len(c.text) < 300])
glue = st.sampled_from(
    ["", " ", "\n", ": ", "=", '"', "'", "{", "]", "\\", "/", "@", ";", "token="]
)


@pytest.mark.parity("harn-bundle", 49, 68)
@settings(max_examples=2 * settings().max_examples)
@given(st.lists(st.one_of(pieces, glue, st.text(max_size=5)), max_size=8))
def test_whatever_stands_together_is_found_once_and_for_all(parts: list[str]) -> None:
    text = "".join(parts)
    once = WHOLE.text(text, "$")
    assert WHOLE.text(once, "$") == once
    assert KNOWN not in once


@pytest.mark.parity("harn-bundle", 50, 52, 55, 57)
@pytest.mark.parametrize(
    "text",
    ["the quick brown canary", "4711 canary", "canary@example.org", "cañáry\nwith “marks” 日本語"],
)
def test_no_content_at_all_survives_where_only_the_structure_is_to_be_replayed(text: str) -> None:
    for canary in (Canary("prose", text, text), Canary("a word of it", text, "canary")):
        if canary.needle in text:
            scrubbed(canary, ScrubConfig(), "replay_only")


@pytest.mark.parity("harn-bundle", 50)
def test_no_secret_survives_where_only_the_structure_is_to_be_replayed() -> None:
    for canary in (*SECRETS[::6], *LOCAL, *PERSONAL_TEXTS[::4]):
        scrubbed(canary, ScrubConfig(secrets=(KNOWN,)), "replay_only")


@pytest.mark.parametrize("mode", ["sanitized", "replay_only"])
def test_nothing_is_logged(mode: Mode, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    scrub = Scrub(mode, CONFIG)
    for canary in SECRETS:
        scrub.text(canary.text, "$")
    assert caplog.records == []
