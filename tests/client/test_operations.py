"""Every operation of a server has a verb of the client, or a reason why it has none."""

from __future__ import annotations

import re
from collections.abc import AsyncIterable, Awaitable, Callable
from typing import Any, TypeAlias

import httpx
import pytest

from holdfast.client import Client, Session
from holdfast.errors import HoldfastError

from ..contracts import routes

Verb: TypeAlias = Callable[[Client, Session], Awaitable[Any] | AsyncIterable[Any]]

VERBS: dict[str, Verb] = {
    "import_bundle": lambda client, _: client.bundles.load(b"{}"),
    "validate_bundle": lambda client, _: client.bundles.validate(b"{}"),
    "follow_changes": lambda client, _: client.changes(),
    "get_me": lambda client, _: client.me(),
    "get_audit": lambda _, session: session.audit(),
    "verify_session": lambda _, session: session.verify(),
    "get_lease": lambda _, session: session.lease(),
    "get_blob": lambda _, session: session.blob("0" * 64),
    "get_usage_table": lambda _, session: session.usage.table(),
    "health": lambda client, _: client.health(),
    "list_inbox": lambda client, _: client.pending(),
    "erase_any_person": lambda client, _: client.people.erase("ada", reason="asked for"),
    "export_any_person": lambda client, _: client.people.export("ada"),
    "list_webhooks": lambda client, _: client.webhooks.list(),
    "add_webhook": lambda client, _: client.webhooks.add("https://example.com/"),
    "get_webhook": lambda client, _: client.webhooks.get("ep"),
    "remove_webhook": lambda client, _: client.webhooks.remove("ep"),
    "rotate_webhook": lambda client, _: client.webhooks.rotate("ep"),
    "test_webhook": lambda client, _: client.webhooks.test("ep"),
    "redeliver_webhook": lambda client, _: client.webhooks.redeliver("ep"),
    "resolve": lambda client, _: client.resolve("slack", "C1"),
    "search": lambda client, _: client.search("heron"),
    "list_budgets": lambda client, _: client.budgets(current=True),
    "list_sessions": lambda client, _: client.list(),
    "create_session": lambda client, _: client.get_or_create(),
    "get_or_create_session": lambda client, _: client.get_or_create("s"),
    "delete_session": lambda _, session: session.delete(),
    "get_session": lambda _, session: session.about(),
    "abort": lambda _, session: session.abort(),
    "rewind": lambda _, session: session.rewind(0),
    "export_bundle": lambda client, _: client.bundles.export("s"),
    "move_bundle": lambda client, _: client.bundles.move("s"),
    "get_display": lambda _, session: session.display.get(),
    "get_events": lambda _, session: session.events(),
    "remove_file": lambda _, session: session.files.remove("a"),
    "pack_files": lambda _, session: session.files.archive(),
    "restore_files": lambda _, session: session.files.restore(b""),
    "read_file": lambda _, session: session.files.read("a"),
    "write_file": lambda _, session: session.files.write("a", "b"),
    "edit_file": lambda _, session: session.files.edit("a", "b", "c"),
    "make_folder": lambda _, session: session.files.make("a"),
    "move_file": lambda _, session: session.files.move("a", "b"),
    "show_files": lambda _, session: session.files.tree(),
    "list_schedules": lambda _, session: session.schedules.list(),
    "set_schedule": lambda _, session: session.schedules.set("s", message="Go on.", every=60),
    "pause_schedule": lambda _, session: session.schedules.pause("s"),
    "resume_schedule": lambda _, session: session.schedules.resume("s"),
    "remove_schedule": lambda _, session: session.schedules.remove("s"),
    "list_follow_ups": lambda _, session: session.follow_ups.list(),
    "reorder_follow_ups": lambda _, session: session.follow_ups.reorder([1]),
    "remove_follow_up": lambda _, session: session.follow_ups.remove(1),
    "edit_follow_up": lambda _, session: session.follow_ups.edit(1, "text"),
    "revoke_grants": lambda _, session: session.permissions.revoke(),
    "grant": lambda _, session: session.permissions.grant(tool="refund"),
    "get_permissions": lambda _, session: session.permissions.get(),
    "set_permission": lambda _, session: session.permissions.set(tool="refund", rule="ask"),
    "send_message": lambda _, session: session.post("Hello"),
    "edit_message": lambda _, session: session.threads.edit(1, "text"),
    "regenerate_message": lambda _, session: session.threads.regenerate(1),
    "get_mode": lambda _, session: session.mode.get(),
    "switch_mode": lambda _, session: session.mode.switch("plan"),
    "get_model": lambda _, session: session.model.get(),
    "choose_model": lambda _, session: session.model.set("openai/x"),
    "list_pending": lambda _, session: session.pending(),
    "answer": lambda _, session: session.answer("yes", "item"),
    "approve": lambda _, session: session.approve("item"),
    "deny": lambda _, session: session.deny("item"),
    "extend": lambda _, session: session.extend("item", 60),
    "get_state": lambda _, session: session.state.get(),
    "change_state": lambda _, session: session.state.update(a=1),
    "replace_state": lambda _, session: session.state.replace({}),
    "get_status": lambda _, session: session.status(),
    "detach_surface": lambda _, session: session.surfaces.detach("slack", "C1"),
    "list_surfaces": lambda _, session: session.surfaces.list(),
    "attach_surface": lambda _, session: session.surfaces.attach("slack", "C1"),
    "list_threads": lambda _, session: session.threads.list(),
    "create_thread": lambda _, session: session.threads.create(),
    "fork_thread": lambda _, session: session.threads.fork(),
    "delete_thread": lambda _, session: session.threads.delete("other"),
    "rename_thread": lambda _, session: session.threads.rename("title"),
    "get_transcript": lambda _, session: session.transcript(),
    "get_usage": lambda _, session: session.usage.get(),
}
WITHOUT = {
    "ag_ui_run": "for clients of AG-UI",
    "mcp": "for MCP clients",
    "ai_sdk_chat": "for clients of the AI SDK",
    "ai_sdk_resume": "for clients of the AI SDK",
    "ai_sdk_messages": "for clients of the AI SDK",
    "add_follow_up": "`session.follow_ups.add` sends a message with `busy='queue'`",
    "steer": "`session.steer` sends a message with `busy='steer'`",
    "erase_person": "`client.people.erase` takes any name, in the query",
    "export_person": "`client.people.export` takes any name, in the query",
    "ready": "for load balancers; programs ask `client.health`",
    "change_session": "no verb yet: `session.threads.rename` sets the title of a thread",
}
# (method, pattern of the path) → operation; the path with the fewest parameters wins.
OPERATIONS = {
    (method.upper(), re.sub(r"{\w+}", "[^/]+", path)): operation
    for path, operations in sorted(routes().items(), key=lambda item: item[0].count("{"))
    for method, operation in (one.split() for one in operations)
}


def test_every_operation_has_a_verb_or_a_reason() -> None:
    assert {*VERBS} | {*WITHOUT} == {*OPERATIONS.values()}
    assert not {*VERBS} & {*WITHOUT}


async def done(found: Awaitable[Any] | AsyncIterable[Any]) -> None:
    if isinstance(found, AsyncIterable):
        async for _ in found:
            pass
    else:
        await found


def operation_of(request: httpx.Request) -> str:
    return next(
        operation
        for (method, path), operation in OPERATIONS.items()
        if method == request.method and re.fullmatch(path, request.url.path)
    )


@pytest.mark.parametrize("operation", VERBS)
async def test_a_verb_asks_for_its_operation(operation: str) -> None:
    asked: list[httpx.Request] = []

    def refuse(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        return httpx.Response(403, json={"error": {"code": "forbidden", "message": "no"}})

    http = httpx.AsyncClient(transport=httpx.MockTransport(refuse))
    async with http, Client("http://server.test", key="hk_x", http=http) as client:
        with pytest.raises(HoldfastError):
            await done(VERBS[operation](client, client.session("s")))
    assert operation_of(asked[0]) == operation
