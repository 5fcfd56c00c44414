"""The client without `await`."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from holdfast import Delta, HarnessClosed, SessionNotFound
from holdfast.client.sync import Client

from .scene import QUICK, SECRET, STORY, app, serving


@pytest.fixture
def url() -> Iterator[str]:
    """A server in a thread of its own."""
    found: list[str] = []
    there, over = threading.Event(), threading.Event()
    made = app()

    async def serve() -> None:
        async with serving(made) as url:
            found.append(url)
            there.set()
            await asyncio.to_thread(over.wait)

    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    assert there.wait(30)
    yield found[0]
    over.set()
    thread.join(30)


def test_the_same_verbs_without_await(url: str) -> None:
    with Client(url, SECRET, patience=QUICK) as client:
        session = client.get_or_create("s")
        assert session.id == "s"
        stream = session.stream("Tell a story.")
        text = "".join(item.text for item in stream if isinstance(item, Delta))
        assert stream.result.text == text == STORY
        result = session.send("Pay.")
        assert result.status == "waiting"
        session.approve(result.pending[0].id)
        assert session.wait().text == "Paid."
        assert session.mode.get() == "counter"
        assert session.state.update(a=1) == {"a": 1}
        made = session.schedules.set("check", message="Hi", every=3_600)
        assert session.schedules.list() == [made]
        assert [row.session for row in client.list().items] == ["s"]
        with pytest.raises(SessionNotFound):
            client.open("nobody")
        for item in session.follow(0):
            assert item.seq == 1
            break
    assert SECRET not in repr(client)
    with pytest.raises(HarnessClosed):
        client.list()
