"""LangGraph's `BaseCheckpointSaver` on any Holdfast store."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from typing import Any, TypeVar

from ...errors import InvalidValue, MissingExtra
from ...log.codec import check_key
from ...log.events import Key
from ...portal import running_loop
from ...stores.port import Store
from ...stores.portal import PortalStore
from ..lazy_store import LazyStore, check_store
from ..recent import keep
from ..retries import persist

try:
    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import (
        BaseCheckpointSaver,
        ChannelVersions,
        Checkpoint,
        CheckpointMetadata,
        CheckpointTuple,
        get_checkpoint_id,
        get_serializable_checkpoint_metadata,
    )
    from langgraph.checkpoint.serde.base import SerializerProtocol

    from . import removal
    from .imported import first_checkpoint
    from .reader import checkpoint_of, load_values, load_writes
    from .thread import THREAD, Record, ThreadLog, run_mark
    from .values import Codec
    from .writer import Put, write_checkpoint, write_writes
except ImportError as error:
    raise MissingExtra(extra="langgraph", needed_for="HoldfastSaver") from error

T = TypeVar("T")

Names = list[tuple[str, str]]  # namespace and id of each checkpoint

THREADS = 256  # logs with a cache in memory


class HoldfastSaver(BaseCheckpointSaver[Any]):
    """A LangGraph checkpointer on a Holdfast store, or on the URL of one. A thread of LangGraph is
    a session with the same id.

    A URL is opened at the first use, once per process; then the saver may be used from any event
    loop and thread, with and without `await`. A store that you pass in is not closed, and the
    methods without `await` must be called from other threads than that of its event loop.

    See [LangGraph](../langgraph.md).
    """

    def __init__(
        self, store: Store | str, *, tenant: str = "main", serde: SerializerProtocol | None = None
    ) -> None:
        super().__init__(serde=serde)
        check_key(Key(tenant, "x", "main"))
        check_store(store)
        if not isinstance(store, str | PortalStore) and running_loop() is not None:
            store = PortalStore(store)
        self._tenant = tenant
        self._opening = LazyStore(store)
        self._logs: dict[Key, ThreadLog] = {}

    def __repr__(self) -> str:
        return f"HoldfastSaver({self._opening!r}, tenant={self._tenant!r})"

    @classmethod
    def from_conn_string(
        cls, conn_string: str, *, tenant: str = "main", serde: SerializerProtocol | None = None
    ) -> HoldfastSaver:
        """Return a saver for the store at this URL. `with` and `async with` open the store, and
        close it at the end."""
        return cls(conn_string, tenant=tenant, serde=serde)

    def __enter__(self) -> HoldfastSaver:
        self._opening.wait(_nothing)
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> HoldfastSaver:
        await self._opening.connect()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def close(self) -> None:
        """Close the store if it was opened from a URL, unless other code in this process uses
        it."""
        self._opening.wait_closed()

    async def aclose(self) -> None:
        """Like `close`, with `await`."""
        await self._opening.close()

    # Reads

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        return self._wait(self._getting(config))

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        return await self._ask(self._getting(config))

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        for load in self._wait(self._listing(config, filter, before, limit)):
            if (found := self._wait(load)) is not None:
                yield found

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        for load in await self._ask(self._listing(config, filter, before, limit)):
            if (found := await self._ask(load)) is not None:
                yield found

    # Writes

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        return self._wait(self._putting(config, checkpoint, metadata, new_versions))

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        return await self._run(self._putting(config, checkpoint, metadata, new_versions))

    def put_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        self._wait(self._writing(config, writes, task_id, task_path))

    async def aput_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        await self._run(self._writing(config, writes, task_id, task_path))

    # Removal and copies

    def delete_thread(self, thread_id: str) -> None:
        """Delete the session of a thread, with everything in it."""
        self._wait(self._deleting(thread_id))

    async def adelete_thread(self, thread_id: str) -> None:
        """Delete the session of a thread, with everything in it."""
        await self._run(self._deleting(thread_id))

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete the checkpoints of these runs, with their writes."""
        self._wait(self._deleting_runs(run_ids))

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete the checkpoints of these runs, with their writes."""
        await self._run(self._deleting_runs(run_ids))

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy a thread, with everything in its session, to a session that does not exist yet."""
        self._wait(self._copying(source_thread_id, target_thread_id))

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy a thread, with everything in its session, to a session that does not exist yet."""
        await self._run(self._copying(source_thread_id, target_thread_id))

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Delete the checkpoints of threads: all of them (`delete`), or all except the latest of
        each namespace and those from which it is rebuilt (`DeltaChannel`)."""
        self._wait(self._pruning(thread_ids, strategy))

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Delete the checkpoints of threads: all of them (`delete`), or all except the latest of
        each namespace and those from which it is rebuilt (`DeltaChannel`)."""
        await self._run(self._pruning(thread_ids, strategy))

    def get_next_version(self, current: Any, channel: None) -> Any:
        """Return the next version of a channel: an integer, or a string if the versions of the
        thread are strings because another saver wrote its first checkpoints."""
        if not isinstance(current, str):
            return 1 if current is None else current + 1
        number = int(current.partition(".")[0]) + 1
        return f"{number:032}.{random.random():016}"  # noqa: S311 - tells branches apart

    # The work of each call, as a function of the store

    def _getting(
        self, config: RunnableConfig
    ) -> Callable[[Store], Awaitable[CheckpointTuple | None]]:
        async def get(store: Store) -> CheckpointTuple | None:
            key, ns, id = self._place(config)
            log = self._log(key)
            async with log.lock:
                if not await log.refresh(store):
                    return None
                record = await (log.record(store, ns, id) if id else log.latest(store, ns))
                if record is None:
                    return None if ns else await self._imported(store, log, id)
                return await self._tuple(store, log, record)

        return get

    async def _tuple(self, store: Store, log: ThreadLog, record: Record) -> CheckpointTuple:
        codec = Codec(self.serde)
        found = await log.pending(store, record.ns, record.id)
        checkpoint = checkpoint_of(record, codec)
        values = await load_values(store, log, codec, record)
        parent = record.parent
        return CheckpointTuple(
            config=_config(log.key.session, record.ns, record.id),
            checkpoint={**checkpoint, "id": record.id, "channel_values": values},  # type: ignore[typeddict-item]
            metadata=codec.decode(record.data["metadata"]),
            parent_config=_config(log.key.session, record.ns, parent) if parent else None,
            pending_writes=load_writes(found, codec),
        )

    async def _imported(
        self, store: Store, log: ThreadLog, id: str | None
    ) -> CheckpointTuple | None:
        """Return the conversation that another program wrote as a checkpoint."""
        version = self.get_next_version(None, None)
        made: Any = await first_checkpoint(store, log, Codec(self.serde), version)
        if made is None or id not in (None, made["id"]):
            return None
        metadata: CheckpointMetadata = {"source": "update", "step": -2, "parents": {}}
        config = _config(log.key.session, "", made["id"])
        return CheckpointTuple(config, made, metadata, None, [])

    def _listing(
        self,
        config: RunnableConfig | None,
        filter: dict[str, Any] | None,
        before: RunnableConfig | None,
        limit: int | None,
    ) -> Callable[[Store], Awaitable[Any]]:
        """Return a function that finds checkpoints. It returns one function per checkpoint, which
        loads that checkpoint."""

        async def find(store: Store) -> Any:
            if config is None:
                keys = await store.locate(self._tenant, THREAD)
                ns = id = None
            else:
                key, _, id = self._place(config)
                keys = [key]
                ns = config["configurable"].get("checkpoint_ns")
            end = get_checkpoint_id(before) if before else None
            names = []
            for key in keys:
                found = await self._names(store, key, ns, id, filter, end, limit)
                names += [(each, key) for each in found]
            if len(keys) > 1:
                names.sort(key=lambda name: name[0][1], reverse=True)
            return [self._getting(_config(key.session, ns, id)) for (ns, id), key in names[:limit]]

        return find

    async def _names(
        self,
        store: Store,
        key: Key,
        ns: str | None,
        id: str | None,
        filter: dict[str, Any] | None,
        end: str | None,
        limit: int | None,
    ) -> Names:
        log = self._log(key)
        codec = Codec(self.serde)
        names: Names = []
        async with log.lock:
            if not await log.refresh(store):
                return []
            async for record in log.newest_first(store, ns):
                if limit is not None and len(names) >= limit:
                    break
                if (id and record.id != id) or (end and record.id >= end):
                    continue
                metadata = codec.decode(record.data["metadata"]) if filter else {}
                if all(metadata.get(name) == value for name, value in (filter or {}).items()):
                    names.append((record.ns, record.id))
        return names

    def _putting(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> Callable[[Store], Awaitable[RunnableConfig]]:
        async def write(store: Store) -> RunnableConfig:
            key, ns, parent = self._place(config)
            merged = get_serializable_checkpoint_metadata(config, metadata)
            put = Put(ns, parent, checkpoint, merged, new_versions)
            await write_checkpoint(store, self._log(key), Codec(self.serde), put)
            return _config(key.session, ns, checkpoint["id"])

        return write

    def _writing(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task: str, path: str
    ) -> Callable[[Store], Awaitable[None]]:
        async def write(store: Store) -> None:
            key, ns, id = self._place(config)
            log, codec = self._log(key), Codec(self.serde)
            if writes:
                await write_writes(
                    store,
                    log,
                    codec,
                    ns=ns,
                    checkpoint=id or "",
                    writes=writes,
                    task=task,
                    path=path,
                )

        return write

    def _deleting(self, thread: str) -> Callable[[Store], Awaitable[None]]:
        async def delete(store: Store) -> None:
            await persist(lambda _: removal.delete_thread(store, self._key(thread)))

        return delete

    def _deleting_runs(self, runs: Sequence[str]) -> Callable[[Store], Awaitable[None]]:
        async def delete(store: Store) -> None:
            for run in runs:
                for key in await store.locate(self._tenant, run_mark(run)):
                    log = self._log(key)
                    await removal.delete_run(store, log, Codec(self.serde), run)

        return delete

    def _copying(self, source: str, target: str) -> Callable[[Store], Awaitable[None]]:
        return lambda store: removal.copy_thread(store, self._key(source), self._key(target))

    def _pruning(self, threads: Sequence[str], strategy: str) -> Callable[[Store], Awaitable[None]]:
        if strategy not in ("keep_latest", "delete"):
            raise InvalidValue(
                field="strategy",
                problem=f"is {strategy!r}",
                remedy="use 'keep_latest' or 'delete'",
            )

        async def prune(store: Store) -> None:
            for thread in threads:
                if strategy == "delete":
                    await self._deleting(thread)(store)
                else:
                    log = self._log(self._key(thread))
                    await removal.keep_latest(store, log, Codec(self.serde))

        return prune

    # Places and calls

    def _place(self, config: RunnableConfig) -> tuple[Key, str, str | None]:
        given = config["configurable"]
        return (
            self._key(given["thread_id"]),
            given.get("checkpoint_ns") or "",
            get_checkpoint_id(config),
        )

    def _key(self, thread: Any) -> Key:
        key = Key(self._tenant, str(thread), "main")
        check_key(key)
        return key

    def _log(self, key: Key) -> ThreadLog:
        log = self._logs.get(key)
        if log is None or log.loop is not asyncio.get_running_loop():
            log = ThreadLog(key)
        keep(self._logs, key, log, THREADS)
        return log

    def _wait(self, work: Callable[[Store], Awaitable[T]]) -> T:
        return self._opening.wait(work)

    async def _ask(self, question: Callable[[Store], Awaitable[T]]) -> T:
        return await self._opening.run(lambda store: persist(lambda _: question(store)))

    async def _run(self, work: Callable[[Store], Awaitable[T]]) -> T:
        return await self._opening.run(work)


def _config(thread: str, ns: str, id: str) -> RunnableConfig:
    return {"configurable": {"thread_id": thread, "checkpoint_ns": ns, "checkpoint_id": id}}


async def _nothing(store: Store) -> None:
    return None
