"""What the SDK counts of its turns: each is counted once, however often its session goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

from .messages import standing_in
from .test_provider import harness, tidy

__all__ = ["tidy"]  # a fixture that every test here uses

pytestmark = pytest.mark.filterwarnings("ignore:Unclosed <MemoryObject:ResourceWarning")


async def test_a_turn_that_goes_on_with_a_session_counts_for_itself_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    with standing_in() as api:
        async with harness(api, f"sqlite:{tmp_path}/s.db", tmp_path) as here:
            session = await here.get_or_create("pets")
            turns = [await session.send(f"Message {number}.") for number in range(3)]
            used = session.usage.get()
    (each,) = {tuple(sorted(turn.usage.items())) for turn in turns}
    assert dict(each)["output_tokens"] > 0
    for name, count in each:
        assert getattr(used, name) == 3 * count
    # Nobody has a price for it, so nobody says that it cost nothing.
    assert used.cost is None
    assert [turn.metrics.cost for turn in turns if turn.metrics is not None] == [None] * 3
