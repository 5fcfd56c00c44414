"""Bundles of a thread that was rewound: they carry every event, conversions the conversation."""

from __future__ import annotations

from holdfast import NewEvent, Sessions, export_bundle, import_bundle, key
from holdfast.bundle import Bundle
from holdfast.bundle.claude import write_claude
from holdfast.bundle.harn import write_harn
from holdfast.stores.memory import MemoryStore
from holdfast.testing.samples import read_all
from holdfast.transcript import transcript

KEY = key("s")
SECRET = "sk-proj-" + "Ab3dE5gH7jK9mN1pQ3sT5vW7yZ9" * 2


async def rewound() -> MemoryStore:
    """A session whose second turn, with a summary, was rewound away."""
    store = MemoryStore()
    events = [
        NewEvent.of("session.created", {"agent": "shop"}),
        NewEvent.of("message.received", {"text": "kept question"}),
        NewEvent.of("message.completed", {"text": "kept answer"}),
        NewEvent.of("message.received", {"text": "gone question"}),
        NewEvent.of("message.completed", {"text": "gone answer"}),
        NewEvent.of("compaction.made", {"upto": 3, "summary": "gone summary"}),
    ]
    await store.append(KEY, events, create=True)
    await Sessions(store).rewind("s", 3)
    await store.append(KEY, [NewEvent.of("message.received", {"text": "next question"})])
    return store


async def bundled(store: MemoryStore) -> Bundle:
    return await export_bundle((store, KEY.scope), "local", purpose="move", move_to="there")


async def test_a_bundle_carries_every_event_and_shows_the_conversation() -> None:
    store = await rewound()
    before = await read_all(store, KEY)
    bundle = await bundled(store)
    assert [*bundle.events("main")] == before
    (shown,) = bundle.document.transcript.sections
    assert (shown.count, shown.summary) == (3, None)
    other = MemoryStore()
    await import_bundle(other, bundle)
    after = await read_all(other, KEY)
    assert after[: len(before)] == before
    assert transcript(after) == transcript(before)
    row = await other.row(KEY)
    assert row is not None
    assert row.counts["messages"] == 3


async def test_conversions_leave_out_what_was_rewound_away_and_say_so() -> None:
    bundle = await bundled(await rewound())
    files, claude = write_claude(bundle)
    record, harn = write_harn(bundle)
    for text, report in ((files.main.decode(), claude), (str(record), harn)):
        assert "kept question" in text
        assert "next question" in text
        assert "gone" not in text
        (loss,) = [one for one in report.losses if "rewound away" in one.what]
        assert loss.count == 3


async def test_a_text_in_a_rewind_is_redacted_as_content() -> None:
    store = MemoryStore()
    payload = {"to": 1, "window": {}, "messages": 0, "first": f"key {SECRET}"}
    events = [NewEvent.of("session.created", {}), NewEvent.of("thread.rewound", payload)]
    await store.append(KEY, events, create=True)
    bundle = await export_bundle((store, KEY.scope), "sanitized")
    (*_, last) = bundle.events("main")
    assert last.kind == "thread.rewound"
    assert SECRET not in bytes(last.data).decode()
