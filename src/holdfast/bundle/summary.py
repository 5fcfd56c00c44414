"""Builds the document of a bundle from the overviews of its threads. Pure.

The limits of lists apply to all threads together; the complete data is in the events.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import Struct

from ..log.catalog import SURFACE_CLAIM, Row, bound
from ..log.state import State
from . import format as f
from .json_values import JsonObject
from .liveness import liveness
from .redaction.manifest import Mode, Redaction
from .sections import Digest, Overview
from .timestamps import rfc3339


class ExportFacts(Struct, frozen=True, kw_only=True):
    """The fields of a document that are not derived from the events."""

    tenant: str
    session: str
    mode: Mode
    purpose: f.Purpose
    upto: int | None = None


class DocumentBuilder(Overview):
    """Builds a document from the digests of threads. Lists are cut at their limits."""

    def __init__(self, about: ExportFacts) -> None:
        super().__init__()
        self.about = about
        self.threads: list[f.Thread] = []
        self.sections: list[f.Section] = []
        self.pending: list[f.PendingItem] = []
        self.queue: list[f.BundleQueuedInput] = []
        self.children: list[f.Child] = []
        self.closed: dict[str, bool] = {}
        self._schemas: dict[tuple[str, str | None], str] = {}
        self._usage: dict[str, int] = {}
        self._cost: float | None = None
        self._runs = self._last = 0
        self._main: tuple[Row, State, int] | None = None

    def add(self, digest: Digest, section: f.Section) -> None:
        """Add a thread and its transcript section."""
        thread, state, row = digest.thread, digest.state, digest.row
        shown = {"agent": row.agent, "title": row.title, "created_at": rfc3339(digest.first)}
        self.threads.append(msgspec.structs.replace(thread, **shown))
        self.sections.append(section)
        self.closed[thread.thread] = digest.closed
        self._last = max(self._last, digest.last)
        if self._main is None or thread.thread == "main":
            self._main = row, state, digest.first
        self._wait(thread.thread, state)
        self._count(digest)
        self.include(digest)
        for name, fingerprint in digest.tools.items():
            if len(self._schemas) < f.LISTED:
                self._schemas.setdefault((name, fingerprint), thread.thread)
        if state.sub is not None:
            self.children.append(
                f.Child(
                    thread=thread.thread,
                    agent=state.sub.agent,
                    parent=state.sub.parent,
                    item=state.sub.item,
                    call=digest.call,
                    status=state.run.status if state.run is not None else "idle",
                    reported=state.sub.reported,
                )
            )

    def _wait(self, thread: str, state: State) -> None:
        for id, item in state.pending.items():
            found = f.PendingItem(
                thread=thread,
                id=id,
                what=item.what,
                seq=item.seq,
                at=item.at,
                call=item.call,
                expires=item.expires,
            )
            self.pending.append(found)
        self.queue += [
            f.BundleQueuedInput(thread=thread, seq=q.seq, how=q.how) for q in state.queue
        ]

    def _count(self, digest: Digest) -> None:
        self._runs += digest.row.counts.get("runs", 0)
        for name, count in digest.row.usage.items():
            self._usage[name] = self._usage.get(name, 0) + count
        if digest.state.cost is not None:
            self._cost = (self._cost or 0.0) + digest.state.cost

    def document(
        self,
        *,
        blobs: Sequence[f.Blob],
        claims: Sequence[str],
        parts: Sequence[f.Part],
        redaction: Redaction,
    ) -> JsonObject:
        """Build the document, with its id."""
        assert self._main is not None
        row, state, first = self._main
        document = f.Document(
            type=f.TYPE,
            version=f.VERSION,
            bundle_id="",
            created_at=rfc3339(self._last),
            mode=self.about.mode,
            purpose=self.about.purpose,
            liveness=liveness(self.closed),
            producer=f.Producer(),
            source=self._source(row, state, first),
            runtime=self._runtime(),
            workspace=self._workspace(row, first),
            session=self._facts(row, first, claims),
            threads=self.threads,
            blobs=list(blobs),
            pending=self.pending,
            queue=self.queue,
            transcript=f.BundleTranscript(sections=self.sections),
            tools=f.Tools(schemas=self._tools(), calls=self.calls, total=self.total),
            permissions=self.permissions,
            replay=self._replay(),
            redaction=redaction,
            attachments=self._kept(blobs),
            parts=sorted(parts, key=lambda part: part.name),
        )
        raw: JsonObject = msgspec.to_builtins(document)
        raw["bundle_id"] = f.id_of(raw)
        return raw

    def _source(self, row: Row, state: State, first: int) -> f.BundleSource:
        spans = [span for span in self.spans if span.thread == row.thread]
        over = state.run is not None and not state.run.open
        return f.BundleSource(
            tenant=self.about.tenant,
            session=self.about.session,
            agent=row.agent,
            name=row.title,
            task=row.first_message,
            status=state.run.status if state.run is not None else "idle",
            started_at=rfc3339(first),
            finished_at=spans[-1].finished_at if over and spans else None,
            first_run=spans[0].run if spans else None,
            last_run=state.run.id if state.run is not None else None,
            runs=self._runs,
            children=len(self.children),
            upto=self.about.upto,
        )

    def _runtime(self) -> f.Runtime:
        models = list(self.models)
        if not self.answers:
            return f.Runtime(models=models)
        usage = f.BundleUsage(
            input_tokens=self._usage.get("input_tokens", 0),
            output_tokens=self._usage.get("output_tokens", 0),
            calls=self.answers,
            duration_ms=self.duration,
            cost=self._cost,
            models=models,
            counts=dict(sorted(self._usage.items())),
        )
        return f.Runtime(models=models, usage=usage)

    def _workspace(self, row: Row, first: int) -> f.Workspace | None:
        if row.workspace is None:
            return None
        return f.Workspace(primary=row.workspace, anchored_at=rfc3339(first))

    def _facts(self, row: Row, first: int, claims: Sequence[str]) -> f.SessionFacts:
        same = (
            *("agent", "title", "user", "workspace", "phase", "metadata", "surfaces", "pinned"),
            *("hold", "ttl", "expiry"),
        )
        return f.SessionFacts(
            tenant=self.about.tenant,
            session=self.about.session,
            labels=list(row.labels),
            created_at=rfc3339(first),
            claims=list(claims),
            **{name: getattr(row, name) for name in same},
        )

    def _tools(self) -> list[f.Entry]:
        return [
            f.Entry(source=thread, index=n, value={"name": name, "fingerprint": fingerprint})
            for n, ((name, fingerprint), thread) in enumerate(self._schemas.items())
        ]

    def _replay(self) -> f.Replay:
        return f.Replay(
            fixtures=self.fixtures,
            children=self.children,
            pointers=[
                f.Pointer(kind="events", thread=thread.thread, location=thread.part)
                for thread in self.threads
            ],
            transitions=self.transitions,
            checkpoints=self.checkpoints,
            spans=self.spans,
        )

    def _kept(self, blobs: Sequence[f.Blob]) -> list[f.Attachment]:
        carried = {blob.sha256 for blob in blobs if blob.part is not None}
        return [found for found in self.attachments if found.sha256 in carried]

    def surfaces(self) -> list[str]:
        """Return the claims of the session's surfaces."""
        row = self._main[0] if self._main is not None else None
        return [SURFACE_CLAIM + name for name in bound(row)] if row is not None else []
