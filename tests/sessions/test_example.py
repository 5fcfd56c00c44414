"""The example of the documentation runs, and twice it is still one session."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast import Sessions, connect
from holdfast.log.catalog import surface_name

from . import example
from .places import OPEN, url


@pytest.mark.parametrize("kind", OPEN)
async def test_the_example_runs(kind: str, tmp_path: Path) -> None:
    place = url(kind, tmp_path)
    session = await example.main(place)
    assert (session.user, session.workspace, session.ttl) == ("user-123", "workspace-456", 1800)
    assert session.phase == "active"
    assert list(session.surfaces) == [
        surface_name("web", "thread-1"),
        surface_name("slack", "dm-99"),
    ]
    assert session.metadata == {"locale": "en-US"}


@pytest.mark.parametrize("kind", [kind for kind in OPEN if kind != "memory"])
async def test_whoever_comes_back_finds_the_session_as_it_was(kind: str, tmp_path: Path) -> None:
    place = url(kind, tmp_path)
    first, second = await example.main(place), await example.main(place)
    assert (first.session, first.surfaces) == (second.session, second.surfaces)
    async with connect(place) as store:
        found = await Sessions(store).find(surface=("slack", "dm-99"), total=True)
        assert ([row.session for row in found.items], found.total) == ([first.session], 1)
