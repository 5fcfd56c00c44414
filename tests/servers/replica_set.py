"""A MongoDB replica set of three members on loopback, each behind a wire of its own."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .mongo import SET, admin_client
from .private import Private
from .process import until
from .shared import name_of
from .wire import Wire

MEMBERS = 3
LOOK = 0.5  # seconds until a member that does not answer is passed over


class ReplicaSet:
    """The members know each other, and clients know them, by the ports of the wires."""

    def __init__(self, servers: list[Private], wires: list[Wire]) -> None:
        self.servers, self.wires = servers, wires

    def start(self, *, election: float) -> None:
        """Start and initiate the set; `election`: seconds without a primary until one is held."""
        for server in self.servers:
            server.start()
        members = [{"_id": n, "host": f"127.0.0.1:{w.port}"} for n, w in enumerate(self.wires)]
        settings = {"electionTimeoutMillis": int(election * 1000), "heartbeatIntervalMillis": 500}
        with admin_client(self.servers[0].address) as admin:
            config = {"_id": SET, "members": members, "settings": settings}
            admin.admin.command("replSetInitiate", config)
        until(lambda: self.primary() is not None, "the set found no primary")
        until(self.healthy, "the members do not catch up")

    def url(self, place: Path | str) -> str:
        hosts = ",".join(f"127.0.0.1:{wire.port}" for wire in self.wires)
        return f"mongodb://{hosts}/{name_of(place)}?replicaSet={SET}"

    def primary(self, leave_out: int | None = None) -> int | None:
        """The number of the member that says it is the primary; one that hangs can be left out."""
        for number in range(MEMBERS):
            hello = {} if number == leave_out else self._ask(number, "hello")
            if hello.get("isWritablePrimary"):
                return number
        return None

    def healthy(self) -> bool:
        """Whether there is a primary, and all others follow it."""
        states = sorted(m["stateStr"] for m in self._status().get("members", []))
        return states == ["PRIMARY"] + ["SECONDARY"] * (MEMBERS - 1)

    def term(self) -> int:
        """How many elections there have been."""
        return int(self._status().get("term", 0))

    def _status(self) -> dict[str, Any]:
        number = self.primary()
        return {} if number is None else self._ask(number, "replSetGetStatus")

    def _ask(self, number: int, command: str) -> dict[str, Any]:
        from pymongo.errors import PyMongoError

        try:
            with admin_client(self.servers[number].address, patience=LOOK) as admin:
                return dict(admin.admin.command(command))
        except PyMongoError:
            return {}


@contextlib.contextmanager
def replica_set(*, election: float = 2.0) -> Iterator[ReplicaSet]:
    """A set of one's own, running."""
    with contextlib.ExitStack() as stack:
        wires = [stack.enter_context(Wire(0)) for _ in range(MEMBERS)]
        members = [
            stack.enter_context(Private("mongodb", advertised=wire.port, member=True))
            for wire in wires
        ]
        for wire, member in zip(wires, members, strict=True):
            wire.target = member.port
        found = ReplicaSet(members, wires)
        found.start(election=election)
        yield found
