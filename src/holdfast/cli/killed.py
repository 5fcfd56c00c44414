"""A process that writes until it is killed, one that reads after it, and their comparison.

What the first was told is safe, number by number through a pipe, is held against what the
second reads. Runs as `python -m holdfast.cli.killed write|read URL SESSION`. Needs no extra.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import IO, Any

from ..events import NewEvent, key
from ..stores import connect

Line = dict[str, Any]
TIMEOUT = 30.0  # seconds that a process may take before it is given up
MORE = 3  # turns that the second process adds


# What the conversation says, so that a reader can tell a whole event from a part of one.


def begin() -> NewEvent:
    return NewEvent.of("session.created", {"agent": "shop", "title": "A talk that is cut short"})


def turn(number: int) -> list[NewEvent]:
    """A question and its answer: one append, so both are there or neither."""
    order = 1_000 + number
    question = f"Where is my order {order}?"
    answer = f"Order {order} left the warehouse and arrives in {number % 5 + 1} days."
    return [
        NewEvent.of("message.received", {"text": question}, actor="customer"),
        NewEvent.of("message.completed", {"text": answer, "model": "demo/scripted"}),
    ]


def expected(seq: int) -> Line:
    """What event `seq` must say."""
    event = begin() if seq == 1 else turn(seq // 2)[seq % 2]
    return {"kind": event.kind, "data": json.loads(bytes(event.data))}


# The two processes


def _say(**line: Any) -> None:
    # One write, so that a kill leaves a line whole or leaves none of it.
    os.write(1, (json.dumps(line) + "\n").encode())


async def write(url: str, session: str) -> None:
    """The first process: append for ever, and say each number when its append has returned."""
    async with connect(url) as store:
        batch, number = [begin()], 0
        while True:
            done = await store.append(key(session), batch, create=number == 0)
            for seq, event in zip(done.seqs, batch, strict=True):
                _say(seq=seq, id=event.id)
            number += 1
            batch = turn(number)


async def read(url: str, session: str) -> None:
    """The second process: read all, verify, and carry on where the log ends."""
    async with connect(url) as store:
        head = 0
        async for event in store.read(key(session)):
            head = event.seq
            _say(seq=head, id=event.id, kind=event.kind, data=event.json())
        async for damage in store.verify(key(session)):
            _say(damage=damage.detail)
        for number in range(MORE):
            batch = turn(head // 2 + 1)
            done = await store.append(key(session), batch, expected=head)
            _say(appended=list(done.seqs), number=number)
            head = done.head


# The one that watches them


@dataclass
class Outcome:
    """What was acknowledged, what was read, and every way in which they disagree."""

    acknowledged: dict[int, str] = field(default_factory=dict)
    read: dict[int, Line] = field(default_factory=dict)
    appended: list[int] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def compare(self) -> None:
        """Find what was lost, what is not whole, and where the numbers are not dense."""
        for seq, id in self.acknowledged.items():
            if seq not in self.read:
                self.problems.append(f"event {seq} was acknowledged and is lost")
            elif self.read[seq]["id"] != id:
                self.problems.append(f"event {seq} is another one than was acknowledged")
        for seq, event in self.read.items():
            if {name: event[name] for name in ("kind", "data")} != expected(seq):
                self.problems.append(f"event {seq} is not whole")
        head = len(self.read)
        if head % 2 == 0:
            self.problems.append(f"event {head} is there without the other half of its append")
        if list(self.read) != list(range(1, head + 1)):
            self.problems.append("the numbers read have gaps")
        if self.appended != list(range(head + 1, head + 2 * MORE + 1)):
            self.problems.append(f"the new numbers do not follow {head}: {self.appended}")


class DemoFailed(Exception):
    """A process of the demo did not do its part."""


def _start(part: str, url: str, session: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "holdfast.cli.killed", part, url, session]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)  # noqa: S603  our own module


def write_and_kill(url: str, session: str, after: int) -> tuple[int, dict[int, str]]:
    """Start the writer, kill it once `after` events are acknowledged; all it was told."""
    process = _start("write", url, session)
    acknowledged: dict[int, str] = {}
    with _patience(process) as said:
        for line in _lines(said):
            acknowledged[line["seq"]] = line["id"]
            if len(acknowledged) == after:
                time.sleep(random.random() / 200)  # noqa: S311  any moment of its work will do
                process.kill()
        if len(acknowledged) < after:
            raise DemoFailed(f"the writer ended by itself: {_last_words(process)}")
    return process.pid, acknowledged


def read_and_go_on(url: str, session: str, outcome: Outcome) -> int:
    """Start the reader and take down what it says."""
    process = _start("read", url, session)
    with _patience(process) as said:
        for line in _lines(said):
            if "damage" in line:
                outcome.problems.append(f"verify found damage: {line['damage']}")
            elif "appended" in line:
                outcome.appended += line["appended"]
            else:
                outcome.read[line["seq"]] = line
        if process.wait() != 0:
            raise DemoFailed(f"the reader failed: {_last_words(process)}")
    return process.pid


@contextmanager
def _patience(process: subprocess.Popen[bytes]) -> Iterator[IO[bytes]]:
    """What the process says, until it ends or has taken too long."""
    assert process.stdout is not None
    timer = threading.Timer(TIMEOUT, process.kill)
    timer.start()
    with process:
        try:
            yield process.stdout
        finally:
            timer.cancel()


def _lines(stream: IO[bytes]) -> Iterator[Line]:
    for line in stream:
        if line.endswith(b"\n"):
            yield json.loads(line)


def _last_words(process: subprocess.Popen[bytes]) -> str:
    assert process.stderr is not None
    words = process.stderr.read().decode(errors="replace").strip()
    return words.rpartition("\n")[2] or f"exit code {process.wait()}"


if __name__ == "__main__":
    asyncio.run({"write": write, "read": read}[sys.argv[1]](*sys.argv[2:]))
