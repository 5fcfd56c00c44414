"""Sessions for MCP clients: each tool, and each resource, is one request of the HTTP API. Pure,
except `server`, which needs the package `mcp`; `Ask` sends the requests with the caller's scopes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Any, TypeAlias
from urllib.parse import quote, unquote

import msgspec
from msgspec import Meta, Struct

from ..errors import HoldfastError, InvalidValue, MissingExtra

SCHEME = "holdfast://sessions/"
JSON = "application/json"
PAGE = 50
ABOUT = "Read and steer the sessions of AI agents: list, search, read, send, approve, deny, answer."

Id = Annotated[str, Meta(min_length=1, max_length=200, description="The id of a session.")]
Text = Annotated[str, Meta(min_length=1, max_length=400)]
Item = Annotated[str, Meta(min_length=1, max_length=512, description="The id of the item.")]
Count = Annotated[int, Meta(ge=1, le=100)]
Cursor = Annotated[str, Meta(max_length=2_000, description="The `cursor` of the previous page.")]
Thread = Annotated[str, Meta(min_length=1, max_length=400, description="A thread of the session.")]


class ApiRequest(Struct, frozen=True, kw_only=True):
    """A request of the HTTP API."""

    method: str
    path: str
    query: dict[str, Any] = {}
    body: Any = None
    wait: float = 0.0


class RpcResponse(Struct, frozen=True, kw_only=True):
    """A response of JSON-RPC, as MCP defines it: a result or an error."""

    jsonrpc: str
    id: str | int | None = None
    result: Any = None
    error: Any = None


Ask: TypeAlias = Callable[[ApiRequest], Awaitable[bytes]]


class Arguments(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base class of the arguments of a tool. The docstrings of its subclasses are shown to
    models."""

    def request(self) -> ApiRequest:
        """Return the request that the call makes."""
        raise NotImplementedError


class ListSessions(Arguments, frozen=True, kw_only=True):
    """List sessions, the most recently active first."""

    agent: Text | None = None
    user: Text | None = None
    limit: Count = 20
    cursor: Cursor | None = None

    def request(self) -> ApiRequest:
        return ApiRequest(method="GET", path="/sessions", query=msgspec.structs.asdict(self))


class ListPending(Arguments, frozen=True, kw_only=True):
    """List pending approvals, questions, and calls whose outcome is unknown."""

    session: Id | None = None
    limit: Count = 20
    cursor: Cursor | None = None

    def request(self) -> ApiRequest:
        return ApiRequest(method="GET", path="/pending", query=msgspec.structs.asdict(self))


class Search(Arguments, frozen=True, kw_only=True):
    """Search the texts of all sessions, newest first."""

    query: Annotated[str, Meta(min_length=1, max_length=1_000)]
    session: Id | None = None
    limit: Count = 20
    cursor: Cursor | None = None

    def request(self) -> ApiRequest:
        about = msgspec.structs.asdict(self)
        return ApiRequest(method="GET", path="/search", query={"q": about.pop("query"), **about})


class InSession(Arguments, frozen=True, kw_only=True):
    """Base class of the tools about one session."""

    session: Id
    thread: Thread = "main"

    def _to(self, method: str, path: str, **more: Any) -> ApiRequest:
        query = {"thread": self.thread, **more.pop("query", {})}
        whole = f"/sessions/{quote(self.session, safe='')}{path}"
        return ApiRequest(method=method, path=whole, query=query, **more)


class ReadSession(InSession, frozen=True, kw_only=True):
    """Read the newest messages of a session, oldest first."""

    limit: Count = 20
    before: Annotated[int, Meta(ge=1, description="Only messages before this event.")] | None = None

    def request(self) -> ApiRequest:
        return self._to("GET", "/transcript", query={"limit": self.limit, "before": self.before})


class SendMessage(InSession, frozen=True, kw_only=True):
    """Send a message to a session and wait for the answer. The status `waiting` means that
    something is pending."""

    content: Annotated[str, Meta(min_length=1)]
    wait: bool = True

    def request(self) -> ApiRequest:
        query = {"wait": "true"} if self.wait else {}
        body, wait = {"content": self.content}, 300.0 if self.wait else 0.0
        return self._to("POST", "/messages", query=query, body=body, wait=wait)


class Approve(InSession, frozen=True, kw_only=True):
    """Approve a pending tool call. Ask the user first."""

    item: Item
    reason: Text | None = None

    def request(self) -> ApiRequest:
        return self._decide(self.item, "approve", {"reason": self.reason})

    def _decide(self, item: str, verb: str, body: Any) -> ApiRequest:
        return self._to("POST", f"/pending/{quote(item, safe='')}/{verb}", body=body)


class Deny(Approve, frozen=True, kw_only=True):
    """Deny a pending tool call; the model reads the reason."""

    def request(self) -> ApiRequest:
        return self._decide(self.item, "deny", {"reason": self.reason})


class Answer(InSession, frozen=True, kw_only=True):
    """Answer a question, or record the result of a call whose outcome is unknown."""

    item: Item
    answer: Any

    def request(self) -> ApiRequest:
        path = f"/pending/{quote(self.item, safe='')}/answer"
        return self._to("POST", path, body={"answer": self.answer})


TOOLS: dict[str, type[Arguments]] = {
    "list_sessions": ListSessions,
    "list_pending": ListPending,
    "search_sessions": Search,
    "read_session": ReadSession,
    "send_message": SendMessage,
    "approve": Approve,
    "deny": Deny,
    "answer": Answer,
}


def request_of(name: str, arguments: Any) -> ApiRequest:
    """Return the request that a tool call makes. Raises `InvalidValue`."""
    if name not in TOOLS:
        raise InvalidValue(
            field="name", problem=f"is {name[:100]!r}", remedy=f"use one of {', '.join(TOOLS)}"
        )
    try:
        found = msgspec.convert(arguments or {}, TOOLS[name])
    except msgspec.ValidationError as error:
        remedy = "see the tool's input schema"
        raise InvalidValue(field="arguments", problem=str(error), remedy=remedy) from None
    return found.request()


def read_of(uri: str) -> ApiRequest:
    """Return the request that reads a resource. Raises `InvalidValue`."""
    id, slash, part = uri.removeprefix(SCHEME).partition("/")
    if not uri.startswith(SCHEME) or not id or (slash and part != "transcript"):
        remedy = f"use {SCHEME}ID or {SCHEME}ID/transcript"
        raise InvalidValue(field="uri", problem=f"is {uri[:200]!r}", remedy=remedy)
    path = f"/sessions/{quote(unquote(id), safe='')}"
    return ApiRequest(method="GET", path=f"{path}/transcript" if part else path)


def schema(arguments: type[Arguments]) -> dict[str, Any]:
    """Return the JSON Schema of a tool's arguments."""
    found = msgspec.json.schema(arguments)
    name = found["$ref"].rpartition("/")[2]
    whole: dict[str, Any] = found["$defs"][name]
    return {**whole, "additionalProperties": False}


def server(ask: Ask, version: str) -> Any:
    """Return an MCP server, of the package `mcp`, that sends its requests with `ask`."""
    try:
        import mcp_types as types  # noqa: PLC0415 - an optional package
        from mcp.server.lowlevel import Server  # noqa: PLC0415
        from mcp.shared.exceptions import MCPError  # noqa: PLC0415
    except ImportError as error:
        raise MissingExtra(extra="mcp", needed_for="an MCP server") from error

    async def tools(ctx: Any, params: Any) -> Any:
        listed = [
            types.Tool(name=name, description=kind.__doc__, input_schema=schema(kind))
            for name, kind in TOOLS.items()
        ]
        return types.ListToolsResult(tools=listed)

    async def call(ctx: Any, params: Any) -> Any:
        try:
            text = (await ask(request_of(params.name, params.arguments))).decode()
        except HoldfastError as error:
            shown = types.TextContent(type="text", text=f"{error.code}: {error}")
            return types.CallToolResult(content=[shown], is_error=True)
        found = msgspec.json.decode(text)
        shown = types.TextContent(type="text", text=text)
        return types.CallToolResult(content=[shown], structured_content=found)

    async def resources(ctx: Any, params: Any) -> Any:
        query = {"limit": PAGE, "cursor": None if params is None else params.cursor}
        page = await read(ApiRequest(method="GET", path="/sessions", query=query))
        found = msgspec.json.decode(page)
        listed = [
            types.Resource(uri=uri, name=name, mime_type=JSON)
            for row in found["items"]
            for uri, name in _resources(row["session"])
        ]
        return types.ListResourcesResult(resources=listed, next_cursor=found.get("cursor"))

    async def templates(ctx: Any, params: Any) -> Any:
        listed = [
            types.ResourceTemplate(uri_template=f"{SCHEME}{{id}}{part}", name=name, mime_type=JSON)
            for part, name in (("", "session"), ("/transcript", "transcript"))
        ]
        return types.ListResourceTemplatesResult(resource_templates=listed)

    async def resource(ctx: Any, params: Any) -> Any:
        try:
            wanted = read_of(str(params.uri))
        except InvalidValue as error:
            raise MCPError(types.INVALID_PARAMS, f"{error.code}: {error}") from None
        text = (await read(wanted)).decode()
        shown = types.TextResourceContents(uri=params.uri, mime_type=JSON, text=text)
        return types.ReadResourceResult(contents=[shown])

    async def read(request: ApiRequest) -> bytes:
        try:
            return await ask(request)
        except HoldfastError as error:
            raise MCPError(types.INVALID_PARAMS, f"{error.code}: {error}") from None

    return Server(
        "holdfast",
        version=version,
        instructions=ABOUT,
        on_list_tools=tools,
        on_call_tool=call,
        on_list_resources=resources,
        on_list_resource_templates=templates,
        on_read_resource=resource,
    )


def _resources(id: str) -> list[tuple[str, str]]:
    uri = f"{SCHEME}{quote(id, safe='')}"
    return [(uri, id), (f"{uri}/transcript", f"{id}: transcript")]
