"""The least time that logs must be kept: every deletion before is refused, and says until when."""

from __future__ import annotations

import pytest

from holdfast import DeletionRefused, InvalidValue, Retention, Sessions, Store
from holdfast.testing.samples import read_all

from .scene import Clock, log, say

DAY = 86_400
LEAST = 180 * DAY


@pytest.fixture
def lawful(store: Store, clock: Clock) -> Sessions:
    return Sessions(store, least=LEAST, clock=clock)


@pytest.mark.parity("user-demand", 54)
async def test_nothing_is_deleted_before_its_time(lawful: Sessions, clock: Clock) -> None:
    await lawful.create("a", user="ann", actor="ann")
    clock.go(DAY)
    await lawful.touch("a", actor="ann")
    await say(lawful.store, "a", "note.made", {"n": 1}, "side")
    clock.go(LEAST - 1)
    for thread in (None, "side"):
        with pytest.raises(DeletionRefused) as refused:
            await lawful.delete("a", thread)
        assert refused.value.reason == "kept until 2027-07-15T08:00:00Z"
    clock.go(1)
    assert (await lawful.delete("a")).removed["logs"] == 2


@pytest.mark.parity("user-demand", 54)
async def test_retention_and_erasure_keep_to_it_and_report(lawful: Sessions, clock: Clock) -> None:
    await lawful.create("a", user="ann", actor="ann")
    await lawful.create("b", user="ben", actor="ben")
    await say(lawful.store, "b", "message.received", {"text": "ann was here"}, actor="ann")
    await lawful.expire("a")
    clock.go(100 * DAY)
    policy = Retention(keep=30 * DAY)
    until = "kept until 2027-07-14T08:00:00Z"
    assert (await lawful.purge_expired(policy)).kept == {"a": until}
    for dry_run in (True, False):
        done = await lawful.erase_person("ann", reason="asked to", dry_run=dry_run)
        assert (done.sessions, done.events, done.refused) == ([], {}, {"a": until, "b": until})
    assert "ann was here" in str((await log(lawful, "b"))[-1].json())
    clock.go(80 * DAY)
    assert (await lawful.purge_expired(policy)).deleted == ["a"]
    assert (await lawful.erase_person("ann", reason="asked to")).events == {"b": 1}
    assert (await read_all(lawful.store, (await lawful.changes.row("b")).key))[-1].json() == {
        "erased": "asked to"
    }


def test_a_time_that_is_none_is_refused(store: Store) -> None:
    with pytest.raises(InvalidValue, match="least"):
        Sessions(store, least=0)
