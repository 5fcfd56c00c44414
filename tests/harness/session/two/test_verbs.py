"""Any verbs, from two processes, one at a time while runs go on: after each of them every promise
holds, and both processes show the same."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from ....processes.crew import Worker, crew
from .laws import Told, broken, events_of
from .scene import VERBS

pytestmark = pytest.mark.slow
MODULE = "tests.harness.session.two.worker"
PATIENCE = 30.0
ENOUGH = 100  # answers, until nothing waits
NAMES = [*VERBS, *["post"] * 5, *["decide"] * 2]


@pytest.fixture(scope="module")
def pair() -> Iterator[list[Worker]]:
    with crew(2, patience=3000.0, module=MODULE) as workers:
        yield workers


class Verbs(RuleBasedStateMachine):
    """A session of two processes, and what they were told."""

    pair: list[Worker]
    folder: Path
    made = 0

    def __init__(self) -> None:
        super().__init__()
        Verbs.made += 1
        self.room = self.folder / str(Verbs.made)
        self.room.mkdir()
        self.told: Told = []
        self.ids: list[str] = []
        self.mode = "draft"
        self.settings: dict[str, Any] = {}
        self.forks: dict[str, int] = {}
        for worker in self.pair:
            url = f"sqlite:{self.room / 'two.db'}?durability=process"
            ask(worker, "open", url=url, folder=str(self.room), session="s")

    @rule(who=st.integers(0, 1), name=st.sampled_from(NAMES), n=st.integers(0, 1 << 40))
    def verb(self, who: int, name: str, n: int) -> None:
        self.heard(ask(self.pair[who], "verb", name=name, n=n))
        self.check()

    @rule(n=st.integers(0, 1 << 40), name=st.sampled_from(["decide", "count", "switch", "post"]))
    def both(self, n: int, name: str) -> None:
        """Both at the same moment."""
        for place, worker in enumerate(self.pair):
            worker.order("verb", name=name, n=n + 2 * 3 * place)
        answers = [worker.hear() for worker in self.pair]
        assert not any("error" in answer for answer in answers), answers
        modes = {self.heard(answer) for answer in answers} - {None}
        self.mode = self.look()["mode"] if modes else self.mode
        assert not modes or self.mode in modes
        self.check()

    @rule()
    def open_the_gate(self) -> None:
        (self.room / "gate").touch()
        self.check()

    @rule()
    def close_the_gate(self) -> None:
        (self.room / "gate").unlink(missing_ok=True)
        self.check()

    def heard(self, answer: dict[str, Any]) -> str | None:
        """Note what somebody was told; the mode, if it was about that."""
        self.told.append(answer)
        self.settings.update([answer["set"]] if "set" in answer else [])
        self.forks.update({answer["fork"]: answer["at"]} if "fork" in answer else {})
        self.mode = answer.get("mode", self.mode)
        return answer.get("mode")

    def check(self) -> None:
        log = ask(self.pair[0], "log")["events"]
        events = events_of(log)
        assert broken(events, self.told) == []
        ids = [event.id for event in events]
        assert ids[: len(self.ids)] == self.ids  # what is written stays
        self.ids = ids
        shown = self.look()
        assert (shown["mode"], shown["settings"]) == (self.mode, self.settings)

    def look(self) -> dict[str, Any]:
        """What both show, as soon as they have heard of the same."""
        until = time.monotonic() + PATIENCE
        while True:
            first = ask(self.pair[0], "look", head=0)
            other = ask(self.pair[1], "look", head=first["head"])
            if first == other:
                view: dict[str, Any] = first["view"]
                return view
            assert time.monotonic() < until, differences(first["view"], other["view"])

    def teardown(self) -> None:
        """Answer everything: then nothing is open, and each of both has said all there is."""
        (self.room / "gate").touch()
        for n in range(ENOUGH):
            status = ask(self.pair[n % 2], "waits")["status"]
            if status != "waiting":
                break
            self.heard(ask(self.pair[n % 2], "verb", name="decide", n=3 * n + 1))
        self.check()
        shown = self.look()
        assert (shown["pending"], shown["queue"], shown["run"][0]) == ([], [], None)
        for fork, at in self.forks.items():
            assert ask(self.pair[0], "shared", fork=fork)["ids"][:at] == self.ids[:at]
        for worker in self.pair:
            ask(worker, "close")


def differences(first: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    return {part: (first[part], other[part]) for part in first if first[part] != other[part]}


def ask(worker: Worker, do: str, **told: Any) -> dict[str, Any]:
    answer = worker.ask(do, **told)
    assert "error" not in answer, answer
    return answer


@pytest.mark.parity("user-demand", 7, 9, 11)
@pytest.mark.parity("mastra-session", 178)
def test_any_verbs_from_two_processes(pair: list[Worker], tmp_path: Path) -> None:
    Verbs.pair, Verbs.folder = pair, tmp_path
    examples = settings.default.max_examples // 3 if settings.default is not None else 10
    run_state_machine_as_test(
        Verbs, settings=settings(max_examples=examples, stateful_step_count=15)
    )
