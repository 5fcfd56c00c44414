"""Finding: rows 49 to 57."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import InvalidValue, Sessions

from .scene import SLACK, WEB, Clock, ids

parity = pytest.mark.parity
TABLE = "agent-assistant-sessions"


async def found(sessions: Sessions, **filters: Any) -> list[str]:
    return sorted(ids((await sessions.find(**filters)).items))


@parity(TABLE, 49, 50, 51, 52, 54)
async def test_sessions_are_found_by_each_filter_and_by_all_of_them(sessions: Sessions) -> None:
    await sessions.create("a1", user="ann", workspace="w1", surface=WEB, metadata={"n": 1})
    await sessions.create("a2", user="ann", workspace="w2", labels=["vip"], agent="shop")
    await sessions.create("b1", user="ben", workspace="w1", surface=SLACK, metadata={"n": True})
    await sessions.create("b2", user="ben")
    await sessions.touch("a1")
    await sessions.touch("b1")
    await sessions.suspend("b1")
    await sessions.expire("b2")

    assert await found(sessions) == ["a1", "a2", "b1", "b2"]
    assert await found(sessions, user="ann") == ["a1", "a2"]
    assert await found(sessions, user="nobody") == []
    assert await found(sessions, workspace="w1") == ["a1", "b1"]
    assert await found(sessions, phases="active") == ["a1"]
    assert await found(sessions, phases=["active", "suspended"]) == ["a1", "b1"]
    assert await found(sessions, phases=("created", "expired")) == ["a2", "b2"]
    assert await found(sessions, phases=[]) == []
    assert (await sessions.find(phases=(), total=True)).total == 0
    assert await found(sessions, surface=WEB) == ["a1"]
    assert await found(sessions, surface=("web", "other")) == []
    assert await found(sessions, metadata={"n": 1}) == ["a1"]
    assert await found(sessions, metadata={"n": True}) == ["b1"]
    assert await found(sessions, label="vip", agent="shop") == ["a2"]
    assert await found(sessions, user="ben", workspace="w1", phases="suspended") == ["b1"]
    assert await found(sessions, user="ann", workspace="w1", surface=SLACK) == []
    assert (await sessions.find(workspace="w1", total=True, limit=1)).total == 2
    await sessions.detach_surface("a1", *WEB)
    assert await found(sessions, surface=WEB) == []


@parity(TABLE, 53)
async def test_sessions_are_found_by_their_times(sessions: Sessions, clock: Clock) -> None:
    times = []
    for id in ("a", "b", "c"):
        times.append(clock.s)
        await sessions.create(id, user="ann")
        clock.go(10)
    assert await found(sessions, active_after=times[1]) == ["c"]  # strictly later
    assert await found(sessions, active_after=times[1] - 1) == ["b", "c"]
    assert await found(sessions, active_after=times[0] - 1, active_until=times[2]) == ["a", "b"]
    assert await found(sessions, created_from=times[1] * 1000) == ["b", "c"]
    assert await found(sessions, created_until=times[1] * 1000) == ["a"]
    assert await found(sessions, active_after=times[0], active_from=times[2]) == ["c"]


@parity(TABLE, 55)
async def test_a_page_has_fifty_or_as_many_as_asked(sessions: Sessions) -> None:
    for n in range(60):
        await sessions.create(f"s{n:02}", user="ann")
    page = await sessions.find()
    assert (len(page.items), page.total) == (50, None)
    rest = await sessions.find(cursor=page.cursor)
    assert (len(rest.items), rest.cursor) == (10, None)
    assert sorted(ids(page.items + rest.items)) == [f"s{n:02}" for n in range(60)]
    assert len((await sessions.find(limit=7)).items) == 7
    assert len((await sessions.find(limit=1000)).items) == 60
    assert (await sessions.find(limit=1, total=True)).total == 60
    for limit in (0, -1, 1001, True, "5"):
        with pytest.raises(InvalidValue, match="limit"):
            await sessions.find(limit=limit)  # type: ignore[arg-type]
    with pytest.raises(InvalidValue, match="limit"):
        await sessions.find(phases=[], limit=0)


@parity(TABLE, 56)
async def test_the_most_recently_active_come_first(sessions: Sessions, clock: Clock) -> None:
    for id in ("a", "b", "c"):
        await sessions.create(id, user="ann")
        clock.go(10)
    await sessions.touch("a")
    assert ids((await sessions.find()).items) == ["a", "c", "b"]
    assert ids((await sessions.find(newest_first=False)).items) == ["b", "c", "a"]
    assert ids((await sessions.find(order="created")).items) == ["c", "b", "a"]
    oldest = await sessions.find(order="created", newest_first=False)
    assert ids(oldest.items) == ["a", "b", "c"]


async def test_a_walk_sees_every_session_and_those_touched_meanwhile_at_its_end(
    sessions: Sessions, clock: Clock
) -> None:
    for n in range(6):
        await sessions.create(f"s{n}", user="ann")
        clock.go(1)
    seen: list[str] = []
    cursor = None
    while True:
        page = await sessions.find(newest_first=False, limit=2, cursor=cursor)
        seen += ids(page.items)
        if len(seen) == 2:
            await sessions.touch("s4")  # not seen yet
            clock.go(1)
            await sessions.touch("s0")  # seen
        if (cursor := page.cursor) is None:
            break
    assert seen == ["s0", "s1", "s2", "s3", "s5", "s4", "s0"]
    walked = [row.session async for row in sessions.walk(user="ann")]
    assert sorted(walked) == [f"s{n}" for n in range(6)]


@parity(TABLE, 57)
async def test_empty_and_unknown_filters_are_refused(sessions: Sessions) -> None:
    await sessions.create("a", user="ann", workspace="w")
    wrong: list[dict[str, Any]] = [
        {"user": ""},
        {"workspace": ""},
        {"agent": ""},
        {"label": ""},
        {"surface": ("", "x")},
        {"surface": ("web", "")},
        {"phases": [""]},
        {"metadata": {"": 1}},
        {"metadata": {"f": print}},
        {"active_after": -1},
        {"created_from": "yesterday"},
        {"order": "random"},
        {"cursor": "nonsense"},
        {"owner": "ann"},
        {"tenant": "other"},
    ]
    for filters in wrong:
        with pytest.raises(InvalidValue):
            await sessions.find(**filters)


async def test_a_phase_that_does_not_exist_is_refused(sessions: Sessions) -> None:
    with pytest.raises(InvalidValue) as refused:
        await sessions.find(phases="actve")  # type: ignore[arg-type]
    assert refused.value.field == "phases"
