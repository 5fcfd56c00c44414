"""The judge that observes the server: it checks every append and every lease during a
simulation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence, Set

from ...log.events import Key, NewEvent
from ...stores.port import Lease
from ...stores.rules import LeaseState

TAKING = ("run.started", "run.resumed")
RUNNER = {
    *TAKING,
    *("run.waiting", "run.finished", "model.called", "tool.started", "tool.finished"),
    *("message.completed", "message.interrupted", "compaction.made", "tool.probed"),
}
DRIVEN = {
    "model.called",
    "tool.started",
    "tool.probed",
    "message.completed",
}  # by the driver that took the run up


class Watch:
    """Checks that only the holder of a lease writes to a log, and records the streamed text."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self.checks: Counter[str] = Counter()
        self.texts: dict[tuple[Key, str], str] = {}
        self._took: dict[
            Key, int
        ] = {}  # the token of the lease under which the active run was started or resumed

    def appended(
        self,
        process: str,
        key: Key,
        events: Sequence[NewEvent],
        fence: Lease | None,
        held: LeaseState,
    ) -> None:
        """Check new events: a driver must write under the newest lease, which it holds, and only to
        a run that it has started or resumed."""
        self.checks["driver"] += 1
        kinds = {event.kind for event in events}
        if fence is None:
            if kinds & RUNNER:
                self._report(f"{process} wrote {sorted(kinds & RUNNER)} without a lease")
            return
        where = f"{key.session}/{key.thread}"
        if fence.token != held.token or fence.owner != held.owner:
            self._report(
                f"{process} wrote {sorted(kinds)} to {where} under lease {fence.token} of"
                f" {fence.owner}; the newest is {held.token} of {held.owner}"
            )
        if not kinds.isdisjoint(TAKING):
            self._took[key] = fence.token
        elif kinds & DRIVEN and self._took.get(key) != fence.token:
            self._report(
                f"{process} wrote {sorted(kinds)} to {where} without starting or resuming the run"
            )

    def _report(self, problem: str) -> None:
        self.problems.append(f"driver: {problem}")

    def acquired(self, process: str, lease: Lease, before: LeaseState, now: int) -> None:
        """Check an acquired lease: a lease that has not expired changes its owner only if it is
        stolen."""
        self.checks["lease"] += 1
        live = before.owner is not None and before.until > now and lease.reason is None
        live = live and before.renewed <= now  # otherwise the server's clock was set back
        if live and before.owner != lease.owner:
            self.problems.append(
                f"lease: {process} took the lease of {lease.key.session}/{lease.key.thread} from"
                f" {before.owner}, which had {before.until - now} ms left"
            )

    def released(self, process: str, lease: Lease, before: LeaseState) -> None:
        """Check a release that the server accepted: a driver may release only its own lease."""
        self.checks["lease"] += 1
        if before.owner is not None and before.token != lease.token:
            self.problems.append(
                f"lease: {process} released lease {before.token} of {before.owner} on"
                f" {lease.key.session}/{lease.key.thread} with its own, {lease.token}"
            )

    def streamed(self, key: Key, message: str, offset: int, text: str) -> None:
        """Record text of a message that was streamed to the store, where readers can see it."""
        known = self.texts.get((key, message), "")
        self.texts[key, message] = known[:offset] + text

    def deleted(self, keys: Set[Key]) -> None:
        """Forget the text of deleted logs: another log may be created under the same key."""
        self.texts = {about: text for about, text in self.texts.items() if about[0] not in keys}
