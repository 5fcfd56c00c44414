"""The client: access to the sessions of a server, with the same methods, return values and errors
as local sessions."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, TypedDict, Unpack, cast

import httpx

from .. import wire
from ..errors import InvalidValue
from ..log.catalog.filters import check_filters
from ..values.options import Content, SendOptions
from ..values.pending import Decision
from ..values.records import Receipt
from ..values.result import Result
from .bundles import Bundles
from .filters import InboxFilters, ListFilters
from .list_changes import list_changes
from .location import ThreadLocation
from .people import People
from .session import Session
from .streams import Stream
from .transport import Patience, Query, Transport, part
from .uploads import files_of, source_of
from .webhooks import WebhookEndpoints

STORE = {"kind", "options"}


class SessionOptions(TypedDict, total=False):
    """The options of a new session: agent, engine, store, user and so on. The server has a default
    for each. `source` uploads an agent, `files` are written to the work folder of the session, and
    `envs` are environment variables for its commands, as far as the server allows them."""

    agent: str
    engine: str
    session_store: Mapping[str, Any]
    user: str
    title: str
    workspace: str
    labels: Iterable[str]
    metadata: Mapping[str, Any]
    source: str | Mapping[str, Any]
    files: Mapping[str, bytes | str]
    envs: Mapping[str, str]


def _checked(about: SessionOptions) -> SessionOptions:
    """Return the options, and reject unknown options."""
    for name in about:
        if name not in SessionOptions.__annotations__:
            remedy = f"use one of {', '.join(SessionOptions.__annotations__)}"
            if name in ("id", "session", "session_id"):
                remedy = "pass the id to `get_or_create(id)` or `open(id)`"
            raise InvalidValue(field=name, problem="is not an option of a session", remedy=remedy)
    store: Any = about.get("session_store")
    if store is not None and not (isinstance(store, Mapping) and {"kind"} <= {*store} <= STORE):
        problem, remedy = (
            "must be a mapping with the kind of a store",
            'pass {"kind": …}, with "options" if needed',
        )
        raise InvalidValue(field="session_store", problem=problem, remedy=remedy)
    return about


class Client:
    """Gives access to the sessions of a server. Use it with `async with`, or call `aclose`.

        async with Client("https://agents.example.com", key="hk_…") as client:
            session = await client.get_or_create("customer-42")
            async for item in session.stream("Refund order 42"):
                ...

    `url` may be a list of addresses of the same server: if one does not respond, the next is tried.
    The other options are defaults for new sessions. Agents, engines and stores are selected by
    name; their credentials stay on the server. The key is sent to the server only.

    See [the client](../client.md).
    """

    def __init__(
        self,
        url: str | Sequence[str],
        key: str | None = None,
        *,
        patience: Patience | None = None,
        http: httpx.AsyncClient | None = None,
        **about: Unpack[SessionOptions],
    ) -> None:
        urls = [url] if isinstance(url, str) else [*url]
        self._transport = Transport(urls, key, patience=patience or Patience(), http=http)
        self.bundles = Bundles(self._transport)
        self.people = People(self._transport)
        self.webhooks = WebhookEndpoints(self._transport)
        self._about = _checked(about)

    def __repr__(self) -> str:
        return f"<client, {self._transport!r}>"

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections. Runs on the server continue."""
        await self._transport.aclose()

    # Sessions

    async def get_or_create(
        self, id: str | None = None, **about: Unpack[SessionOptions]
    ) -> Session:
        """Return the session with this id. It is created if it does not exist. Without an id, a new
        session is created."""
        given: dict[str, Any] = {**self._about, **_checked(about)}
        if (store := given.pop("session_store", None)) is not None:
            given["store"] = wire.StoreWish(**store)
        if (source := given.pop("source", None)) is not None:
            given["source"] = source_of(source)
        given["files"] = files_of(given.get("files") or {})
        given["envs"] = dict(given.get("envs") or {})
        given["labels"] = [*given.get("labels", ())]
        given["metadata"] = dict(given.get("metadata") or {})
        call = self._transport.call
        if id is None:
            body: Any = wire.CreateSession(**given)
            view = await call("POST", "/v1/sessions", wire.SessionView, body=body)
        else:
            body, path = wire.GetOrCreate(**given), f"/v1/sessions/{part(id, 'id')}"
            view = await call("PUT", path, wire.SessionView, body=body)
        return Session(ThreadLocation(self._transport, view.id))

    async def open(self, id: str, thread: str = "main") -> Session:
        """Open an existing session. Raises `SessionNotFound`."""
        session = self.session(id, thread)
        await session.about()
        return session

    def session(self, id: str, thread: str = "main") -> Session:
        """Return a session by its id, without sending a request to the server."""
        return Session(ThreadLocation(self._transport, id, thread))

    async def list(
        self, *, cursor: str | None = None, limit: int = 50, **filters: Unpack[ListFilters]
    ) -> wire.RowPage:
        """List the sessions that match all filters, most recently active first within each store.
        The stores of the server are listed one after the other; `store=KIND` lists only the store
        of that kind. `missing` lists the stores that could not be reached."""
        check_filters(ListFilters, filters, "cursor", "limit")
        query = cast(Query, {**filters, "cursor": cursor, "limit": limit})
        return await self._transport.call("GET", "/v1/sessions", wire.RowPage, query=query)

    async def search(
        self, query: str, *, cursor: str | None = None, limit: int = 20, **filters: Any
    ) -> wire.FoundPage:
        """Return a page of the events whose text matches, newest first within each store, over all
        sessions that the key may see. Filters: `session`, `user`, `agent`, `phase`, `kind`,
        `label`, `since`, `until`, `store`. A page may have fewer hits than `limit` although more
        pages follow."""
        wanted = {**filters, "q": query, "cursor": cursor, "limit": limit}
        return await self._transport.call("GET", "/v1/search", wire.FoundPage, query=wanted)

    async def delete(self, id: str) -> Receipt:
        """Stop a session, and delete all its data."""
        return await self.session(id).delete()

    async def resolve(
        self,
        surface: str,
        address: str,
        *,
        user: str | None = None,
        workspace: str | None = None,
        id: str | None = None,
        agent: str | None = None,
    ) -> Session:
        """Return the session that a message belongs to, determined by the surface it came from. The
        session is created if needed."""
        body = wire.Resolve(
            surface=surface,
            address=address,
            user=user,
            workspace=workspace,
            id=id,
            agent=agent or self._about.get("agent"),
        )
        view = await self._transport.call("POST", "/v1/resolve", wire.SessionView, body=body)
        return Session(ThreadLocation(self._transport, view.id))

    async def changes(self, *, user: str | None = None) -> AsyncGenerator[wire.ListChange, None]:
        """Stream the changes of the lists that the key may see: a `Row` for a session with new
        activity, `InboxChanged` when the inbox has changed, `ListResync` when the lists must be
        read again, first when the stream begins. Reconnects until you stop reading."""
        async for change in list_changes(self._transport, {"user": user}):
            yield change

    async def budgets(
        self,
        *,
        user: str | None = None,
        current: bool = False,
        store: str | None = None,
        cursor: str | None = None,
        limit: int = 50,
    ) -> wire.BudgetPage:
        """List what the key's user has used of budgets, or with the scope `sessions:all`, what the
        tenant and all users have used, or only `user`. `current` lists only the current day and
        month, and totals."""
        query: Query = {
            "user": user,
            "current": current,
            "store": store,
            "cursor": cursor,
            "limit": limit,
        }
        return await self._transport.call("GET", "/v1/budgets", wire.BudgetPage, query=query)

    async def me(self) -> wire.Me:
        """Return the principal, tenant and scopes of the key."""
        return await self._transport.call("GET", "/v1/me", wire.Me)

    async def health(self) -> wire.Health:
        """Return the version of the server, and the names of its engines, agents, loaders and
        stores."""
        return await self._transport.call("GET", "/v1/health", wire.Health)

    # Methods of a session, called with its id

    async def send(
        self, id: str | None, content: Content, **options: Unpack[SendOptions]
    ) -> Result:
        """Call `session.send` on the session with this id, which is created if it does not
        exist."""
        return await (await self.get_or_create(id)).send(content, **options)

    async def stream(
        self, id: str | None, content: Content, **options: Unpack[SendOptions]
    ) -> Stream:
        """Call `session.stream` on the session with this id, which is created if it does not
        exist."""
        return (await self.get_or_create(id)).stream(content, **options)

    async def approve(self, id: str, item: str | None = None, **options: Any) -> Decision:
        return await self.session(id).approve(item, **options)

    async def deny(self, id: str, item: str | None = None, **options: Any) -> Decision:
        return await self.session(id).deny(item, **options)

    async def answer(self, id: str, answer: Any, item: str | None = None) -> Decision:
        return await self.session(id).answer(answer, item)

    async def pending(
        self,
        *,
        cursor: str | None = None,
        limit: int = 50,
        wait: float = 0.0,
        tag: str | None = None,
        **filters: Unpack[InboxFilters],
    ) -> wire.PendingPage:
        """List the pending items of all sessions that the key may see, oldest first within each
        store. The stores are listed one after the other; `store=KIND` lists only the store of that
        kind. With `wait`, the server responds as soon as an item is pending, but after `wait`
        seconds at the latest. If the `tag` of an earlier page is passed, it responds as soon as
        that page has changed. `missing` lists the stores that could not be reached."""
        check_filters(InboxFilters, filters, "cursor", "limit", "wait", "tag")
        more = {"cursor": cursor, "limit": limit, "wait": wait or None, "tag": tag}
        query = cast(Query, {**filters, **more})
        return await self._transport.call(
            "GET", "/v1/pending", wire.PendingPage, query=query, wait=wait
        )
