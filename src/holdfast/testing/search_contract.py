"""`SearchContract`: tests for the search of a store. Subclass it, and provide a fixture `store`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any

import pytest

from ..errors import HeadMoved, InvalidValue, SessionNotFound
from ..events import NewEvent, key
from ..log.catalog import SearchQuery
from ..sessions import Sessions, declare_text
from ..store import Store
from ..values.search import Found, SearchPage

# The text of an event, a query that finds it, and a query that does not find it.
LANGUAGES = {
    "English": ("The parcel was DELIVERED late.", "delivered", "deliver"),
    "German": ("Die Straße ist naß, Herr Müller.", "strasse muller", "strass"),
    "Arabic": ("أُرْسِلَتِ الشُّحْنَةُ أمس", "الشحنة", "الشحن"),
    "Chinese": ("我在北京大学学习", "北京", "东京"),
    "Japanese": ("荷物がまだ届きません", "届きません", "届きます"),
    "Thai": ("พัสดุยังไม่มาถึง", "พัสดุ", "พัสดี"),
    "emoji": ("Great 👍🏽 thanks", "👍", "👎"),
    "code": ("def getUser(order_id): return None", "order_id", "orderid"),
}


async def said(
    store: Store, session: str, *texts: str, thread: str = "main", tenant: str = "main"
) -> list[int]:
    """Append one message of a user for each text. Return the numbers of the events."""
    events = [NewEvent.of("message.received", {"text": text}, actor="ann") for text in texts]
    done = await store.append(key(session, thread, tenant), events, create=True)
    return list(done.seqs)


async def pages(
    store: Store, text: str, *, limit: int = 20, tenant: str = "main", **filters: Any
) -> AsyncGenerator[SearchPage, None]:
    """Wait until everything is indexed, then yield all pages of a search."""
    query = SearchQuery(text=text, tenant=tenant, **filters)
    page = await store.search(query, limit=limit)
    async with asyncio.timeout(60):
        while page.behind:
            page = await store.search(query, limit=limit)
    while True:
        yield page
        if page.cursor is None:
            return
        page = await store.search(query, cursor=page.cursor, limit=limit)


async def find(store: Store, text: str, **options: Any) -> list[Found]:
    """Wait until everything is indexed, then return all matches of a search."""
    async with aclosing(pages(store, text, **options)) as some:
        return [hit async for page in some for hit in page.hits]


def places(hits: Sequence[Found]) -> list[tuple[str, str, int]]:
    """Return the session, thread and number of each match, sorted."""
    return sorted((hit.session, hit.thread, hit.seq) for hit in hits)


class SearchContract:
    """Tests for the search of every store, one test per guarantee.

    See [writing a store](../writing-a-store.md) and [simulation](../simulation.md).
    """

    pytestmark = pytest.mark.asyncio

    # The language

    @pytest.mark.parametrize("language", LANGUAGES)
    async def test_words_of_every_language_are_found(self, store: Store, language: str) -> None:
        text, query, other = LANGUAGES[language]
        await said(store, "s", "something else", text)
        (hit,) = await find(store, query)
        assert hit.excerpt == text
        assert [text[start:end] for start, end in hit.marks] != []
        assert await find(store, other) == []

    async def test_all_words_must_be_in_one_event(self, store: Store) -> None:
        await said(store, "s", "apples and pears", "apples", "pears")
        assert places(await find(store, "pears APPLES")) == [("s", "main", 1)]

    async def test_a_phrase_is_found_in_this_order_alone(self, store: Store) -> None:
        await said(store, "s", "a late delivery", "delivery late", "late, delivery")
        assert places(await find(store, '"late delivery"')) == [("s", "main", 1), ("s", "main", 3)]

    async def test_a_prefix_finds_words_that_go_on(self, store: Store) -> None:
        await said(store, "s", "shipping", "shipped", "a ship", "worship")
        assert [place[2] for place in places(await find(store, "ship*"))] == [1, 2, 3]

    async def test_words_and_phrases_are_excluded(self, store: Store) -> None:
        await said(store, "s", "refund paid", "refund not paid", "refund open")
        assert [place[2] for place in places(await find(store, "refund -paid"))] == [3]
        assert [place[2] for place in places(await find(store, 'refund -"not paid"'))] == [1, 3]

    async def test_identifiers_are_found_whole_and_in_parts(self, store: Store) -> None:
        await said(store, "s", "see order_4711", "call getUser()", "order 4711")
        assert [p[2] for p in places(await find(store, "order_4711"))] == [1]
        assert [p[2] for p in places(await find(store, "4711"))] == [1, 3]
        assert [p[2] for p in places(await find(store, "user"))] == [2]
        assert [p[2] for p in places(await find(store, "getuser"))] == [2]

    @pytest.mark.parametrize("text", ["", "-only", "from:nobody", "?!", "x " * 40])
    async def test_a_query_that_names_nothing_is_rejected(self, store: Store, text: str) -> None:
        with pytest.raises(InvalidValue, match="query"):
            await store.search(SearchQuery(text=text))

    # What is searched

    async def test_calls_and_results_are_found_by_tool_and_role(self, store: Store) -> None:
        call = {"id": "c1", "name": "refund", "arguments": {"order": "o-77", "note": "line\nquota"}}
        other = {"id": "c2", "name": "look", "arguments": {"order": "o-77"}}
        await said(store, "s", "please refund o-77")
        await store.append(
            key("s"),
            [
                NewEvent.of("message.completed", {"text": "ok o-77", "calls": [call, other]}),
                NewEvent.of("tool.finished", {"call": "c1", "error": "quota exceeded for o-77"}),
                NewEvent.of("tool.finished", {"call": "c2", "result": {"state": ["o-77"]}}),
            ],
        )
        assert [p[2] for p in places(await find(store, '"o-77"'))] == [1, 2, 3, 4]
        assert [p[2] for p in places(await find(store, "quota from:tool"))] == [3]
        assert [p[2] for p in places(await find(store, "quota from:assistant"))] == [2]
        assert [p[2] for p in places(await find(store, "77 from:user"))] == [1]
        assert [p[2] for p in places(await find(store, "tool:refund"))] == [2, 3]
        assert [p[2] for p in places(await find(store, "77 tool:look -from:assistant"))] == [4]
        (hit,) = await find(store, '"quota exceeded"')
        assert (hit.role, hit.call, hit.kind) == ("tool", "c1", "tool.finished")

    async def test_events_of_programs_are_found_by_their_declared_text(self, store: Store) -> None:
        declare_text("searchcontract.note", lambda data: data["note"])
        event = NewEvent.of("searchcontract.note", {"note": "a kingfisher", "id": "kestrel"})
        other = NewEvent.of("searchcontract.other", {"note": "a kingfisher"})
        await store.append(key("s"), [event, other], create=True)
        assert places(await find(store, "kingfisher")) == [("s", "main", 1)]
        assert await find(store, "kestrel") == []

    async def test_a_text_function_that_fails_hides_its_own_events_alone(
        self, store: Store, caplog: pytest.LogCaptureFixture
    ) -> None:
        declare_text("searchcontract.broken", lambda data: str(1 // 0))
        odd: Any = [5]
        declare_text("searchcontract.odd", lambda data: odd)
        events = [NewEvent.of(f"searchcontract.{name}") for name in ("broken", "odd")]
        await store.append(key("s"), events, create=True)
        await said(store, "s", "a kingfisher")
        assert places(await find(store, "kingfisher")) == [("s", "main", 3)]
        assert "ZeroDivisionError" in caplog.text

    async def test_a_match_is_marked_in_its_excerpt(self, store: Store) -> None:
        await said(store, "s", "x " * 500 + "where is the Pelican now? " + "y " * 500)
        (hit,) = await find(store, "pelican")
        assert len(hit.excerpt) < 300
        assert [hit.excerpt[start:end] for start, end in hit.marks] == ["Pelican"]
        assert (hit.by, hit.role, hit.thread, hit.seq) == ("ann", "user", "main", 1)

    # Filters

    async def test_filters_narrow_a_search(self, store: Store) -> None:
        sessions = Sessions(store, actor="app")
        await sessions.create("a", user="ann", agent="shop", labels=["vip"], title="Heron A")
        await sessions.create("b", user="ben", agent="desk")
        for session in "ab":
            await said(store, session, f"heron of {session}")
        await sessions.suspend("b")
        found = {
            "user": await find(store, "heron of", user="ann"),
            "agent": await find(store, "heron of", agent="desk"),
            "phase": await find(store, "heron of", phases=("suspended",)),
            "label": await find(store, "heron of", labels=("vip",)),
            "session": await find(store, "heron of", session="b"),
            "kind": await find(store, "heron", kind="session.created"),
        }
        assert {name: [hit.session for hit in hits] for name, hits in found.items()} == {
            "user": ["a"],
            "agent": ["b"],
            "phase": ["b"],
            "label": ["a"],
            "session": ["b"],
            "kind": ["a"],
        }
        assert found["user"][0].title == "Heron A"

    async def test_times_of_events_limit_a_search(self, store: Store) -> None:
        await said(store, "s", "one heron")
        (first,) = await find(store, "heron")
        while True:
            await said(store, "t", "another heron")
            hits = await find(store, "heron")
            if hits[0].at > first.at:
                break
        assert places(await find(store, "heron", until=first.at + 1, session="s")) == [
            ("s", "main", 1)
        ]
        assert await find(store, "heron", until=first.at) == []
        late = await find(store, "heron", since=hits[0].at)
        assert late[0] == hits[0]
        assert all(hit.at >= hits[0].at for hit in late)

    async def test_a_session_that_does_not_exist_is_not_found(self, store: Store) -> None:
        with pytest.raises(SessionNotFound, match="nobody"):
            await store.search(SearchQuery(text="x", session="nobody"))

    async def test_a_tenant_finds_only_its_own(self, store: Store) -> None:
        await said(store, "s", "heron", tenant="one")
        await said(store, "s", "heron heron", tenant="two")
        (hit,) = await find(store, "heron", tenant="one")
        assert hit.excerpt == "heron"
        assert await find(store, "heron", tenant="three") == []

    # Pages

    async def test_pages_return_every_match_once_while_others_append(self, store: Store) -> None:
        for number in range(5):
            await said(store, f"s{number}", *(f"heron {number} {n}" for n in range(5)))
        before = places(await find(store, "heron"))
        seen: list[Found] = []
        async with aclosing(pages(store, "heron", limit=3)) as some:
            async for page in some:
                assert len(page.hits) <= 3
                seen += page.hits
                await said(store, "s2", "late heron")
                await said(store, f"new{len(seen)}", "new heron")
        assert len(before) == 25
        assert [place for place in places(seen) if place in before] == before
        assert len(set(places(seen))) == len(seen)

    @pytest.mark.parametrize("limit", [4, 10, 30])
    async def test_no_match_is_lost_among_events_that_do_not_match(
        self, store: Store, limit: int
    ) -> None:
        for number in range(8):
            texts = [f"{'grey' if n % 3 else 'a'} heron {n}" for n in range(12)]
            await said(store, f"s{number}", *texts)
        expected = [(f"s{n}", "main", seq) for n in range(8) for seq in (2, 3, 5, 6, 8, 9, 11, 12)]
        assert places(await find(store, '"grey heron"', limit=limit)) == sorted(expected)
        assert places(await find(store, 'heron -"a heron"', limit=limit)) == sorted(expected)

    async def test_matches_come_newest_first(self, store: Store) -> None:
        for session in ("a", "b", "a", "c", "b"):
            await said(store, session, "heron")
            await asyncio.sleep(0.002)
        times = [hit.at for hit in await find(store, "heron")]
        assert times == sorted(times, reverse=True)

    async def test_a_cursor_of_another_search_is_rejected(self, store: Store) -> None:
        await said(store, "s", "heron", "heron", "heron")
        page = await store.search(SearchQuery(text="heron"), limit=1)
        with pytest.raises(InvalidValue, match="cursor"):
            await store.search(SearchQuery(text="pelican"), cursor=page.cursor)
        with pytest.raises(InvalidValue, match="cursor"):
            await store.search(SearchQuery(text="heron"), cursor="nonsense")
        with pytest.raises(InvalidValue, match="cursor"):
            await store.search(SearchQuery(text="heron", tenant="other"), cursor=page.cursor)

    # Threads and time

    async def test_an_event_that_forks_share_is_one_match(self, store: Store) -> None:
        await said(store, "s", "a heron", "a pelican")
        first = NewEvent.of("thread.forked", {"parent": "main", "at": 2})
        await store.fork(key("s"), "fork", at=2, first=first)
        await said(store, "s", "a second heron", thread="fork")
        await said(store, "s", "a third heron")
        assert places(await find(store, "heron")) == [
            ("s", "fork", 4),
            ("s", "main", 1),
            ("s", "main", 3),
        ]
        single = [hit async for page in pages(store, "heron", limit=1) for hit in page.hits]
        assert places(single) == places(await find(store, "heron"))

    async def test_a_shared_event_stays_when_its_parent_is_deleted(self, store: Store) -> None:
        await said(store, "s", "a heron", thread="first")
        await said(store, "s", "other")
        first = NewEvent.of("thread.forked", {"parent": "first", "at": 1})
        await store.fork(key("s", "first"), "fork", at=1, first=first)
        assert places(await find(store, "heron")) == [("s", "first", 1)]
        await store.delete(key("s", "first"))
        assert places(await find(store, "heron")) == [("s", "fork", 1)]

    async def test_what_a_rewind_removed_is_not_found(self, store: Store) -> None:
        sessions = Sessions(store)
        await sessions.create("s", user="ann")
        await said(store, "s", "a heron", "a pelican")
        assert len(await find(store, "pelican")) == 1
        await store.fork(
            key("s"), "fork", at=3, first=NewEvent.of("thread.forked", {"parent": "main", "at": 3})
        )
        rewound = (await sessions.rewind("s", 2)).head
        assert places(await find(store, "pelican")) == [("s", "fork", 3)]
        await said(store, "s", "another pelican")
        assert [p[2] for p in places(await find(store, "pelican", session="s"))] == [3, rewound + 1]
        assert places(await find(store, "heron")) == [("s", "main", 2)]

    async def test_what_was_compacted_is_found(self, store: Store) -> None:
        await said(store, "s", "a heron")
        made = NewEvent.of("compaction.made", {"upto": 1, "summary": "birds were discussed"})
        await store.append(key("s"), [made])
        assert places(await find(store, "heron")) == [("s", "main", 1)]
        assert places(await find(store, "birds")) == [("s", "main", 2)]

    async def test_threads_of_sub_agents_are_searched(self, store: Store) -> None:
        await said(store, "s", "do it")
        created = NewEvent.of("thread.created", {"parent": "main", "agent": "digger"})
        await store.append(key("s", "sub"), [created], create=True)
        await said(store, "s", "found a heron", thread="sub")
        assert places(await find(store, "heron")) == [("s", "sub", 2)]
        assert places(await find(store, "heron", agent="digger")) == [("s", "sub", 2)]

    # Deletion

    async def test_what_was_deleted_or_erased_is_not_found(self, store: Store) -> None:
        for session in "abc":
            await said(store, session, "a heron", "a pelican")
        assert len(await find(store, "heron")) == 3
        await store.delete(key("a").scope)
        await store.erase(key("b"), [1], reason="asked to")
        assert places(await find(store, "heron")) == [("c", "main", 1)]
        assert places(await find(store, "pelican")) == [("b", "main", 2), ("c", "main", 2)]
        await said(store, "a", "a new heron")
        assert places(await find(store, "heron")) == [("a", "main", 1), ("c", "main", 1)]

    async def test_a_shared_event_is_erased_from_all_forks(self, store: Store) -> None:
        await said(store, "s", "a heron", "a pelican")
        for name in ("one", "two"):
            first = NewEvent.of("thread.forked", {"parent": "main", "at": 2})
            await store.fork(key("s"), name, at=2, first=first)
        assert len(await find(store, "heron pelican -x")) == 0
        assert len(await find(store, "heron")) == 1
        await store.erase(key("s", "two"), [1], reason="asked to")
        assert await find(store, "heron") == []
        assert places(await find(store, "pelican")) == [("s", "main", 2)]

    async def test_a_refused_delete_removes_nothing_from_the_search(self, store: Store) -> None:
        await said(store, "s", "a heron")
        assert len(await find(store, "heron")) == 1
        with pytest.raises(HeadMoved):
            await store.delete(key("s"), expected=7)
        with pytest.raises(InvalidValue):
            await store.erase(key("s"), [9], reason="x")
        assert places(await find(store, "heron")) == [("s", "main", 1)]

    # The index

    async def test_a_new_index_finds_the_same(self, store: Store) -> None:
        for number in range(3):
            await said(store, f"s{number}", "heron", "pelican")
        before = places(await find(store, "heron"))
        progress = [one async for one in store.reindex()]
        assert all(0 <= one.done <= one.total for one in progress)
        assert places(await find(store, "heron")) == before
        await said(store, "s1", "heron")
        assert len(await find(store, "heron")) == 4
