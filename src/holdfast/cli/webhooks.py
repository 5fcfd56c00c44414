"""`holdfast webhooks`: manage webhook endpoints, and deliver to them."""

from __future__ import annotations

import asyncio
import signal
from typing import Annotated, TypeAlias

import msgspec
from cyclopts import Parameter

from ..environment import wall_clock
from ..errors import InvalidValue
from ..values.webhooks import NewWebhook
from ..webhooks import Deliverer, HttpSender, Webhooks, networks
from ..webhooks.addresses import check_literal
from .options import DEFAULTS, Common, instant, seconds, user
from .render import table_text

Endpoint: TypeAlias = Annotated[str, Parameter(help="Endpoint id, as in `holdfast webhooks list`.")]
Network: TypeAlias = Annotated[
    tuple[str, ...],
    Parameter(help="Private network that endpoints may be in, such as 10.0.0.0/8; repeatable."),
]


def _hooks(store: object, common: Common) -> Webhooks:
    return Webhooks(store, tenant=common.tenant, actor=f"cli:{user()}")  # type: ignore[arg-type]  # a Store


async def add(
    url: str,
    /,
    *,
    kind: tuple[str, ...] = (),
    agent: tuple[str, ...] = (),
    label: tuple[str, ...] = (),
    since: str | None = None,
    give_up: str = "3d",
    common: Common = DEFAULTS,
) -> None:
    """Add an endpoint and print its secret once.

    ```
    holdfast webhooks add https://example.com/hooks --kind 'run.*' --kind pending.opened
    ```

    With `--json`, prints one JSON object.

    :param url: URL of the receiver.
    :param kind: Only events of this kind, or of all kinds of a namespace (run.*); repeatable.
    :param agent: Only sessions of this agent; repeatable.
    :param label: Only sessions with this label; repeatable.
    :param since: Deliver events since this time: ISO date or time, or a duration such as 2h.
        Default: now.
    :param give_up: How long an event is tried until it becomes a dead letter.
    """
    at = None if since is None else instant("--since", since, wall_clock())
    left = seconds("--give-up", give_up)
    async with common.open() as store:
        made = await _hooks(store, common).add(
            url, kinds=kind, agents=agent, labels=label, since=at, give_up=left
        )
    _show_new(common, made)
    try:
        check_literal(url)
    except InvalidValue as error:
        common.output().note(f"deliveries to it fail without --network: {error.problem}")


async def list_(*, common: Common = DEFAULTS) -> None:
    """List the endpoints of the tenant, newest first, without their secrets.

    ```
    holdfast webhooks list
    ```

    With `--json`, prints one JSON list.
    """
    out = common.output()
    async with common.open() as store:
        found = await _hooks(store, common).list()
    rows = [
        {
            "ID": one.id,
            "STATE": one.state,
            "DEAD": str(one.dead) if one.dead else "",
            "KINDS": " ".join(one.kinds),
            "URL": one.url,
            "ERROR": one.error or "",
        }
        for one in found
    ]
    table = table_text(rows, out.console.width, optional=("ERROR", "DEAD", "KINDS"))
    out.show(msgspec.to_builtins(found), table, f"tenant {common.tenant!r} has no endpoints")


async def test_(
    endpoint: Endpoint,
    /,
    *,
    network: Network = (),  # noqa: PT028 - a verb
    common: Common = DEFAULTS,  # noqa: PT028
) -> int:
    """Send a test delivery now and show what the receiver answered.

    ```
    holdfast webhooks test ep_0f1e2d3c4b5a69788796a5b4
    ```

    Exit code 1 if the receiver did not accept it. With `--json`, prints one JSON object.
    """
    out, sender = common.output(), HttpSender(networks(network))
    try:
        async with common.open() as store:
            reply = await _hooks(store, common).test(endpoint, sender)
    finally:
        await sender.aclose()
    said = f"accepted (HTTP status {reply.status})" if reply.ok else f"failed: {reply.problem}"
    out.show(msgspec.to_builtins(reply), said)
    return 0 if reply.ok else 1


async def redeliver(
    endpoint: Endpoint,
    /,
    *,
    session: str | None = None,
    thread: str = "main",
    after: int = 0,
    since: str | None = None,
    common: Common = DEFAULTS,
) -> None:
    """Deliver dead letters again, or all events of a session or since a time.

    ```
    holdfast webhooks redeliver ep_0f1e2d3c4b5a69788796a5b4
    holdfast webhooks redeliver ep_0f1e2d3c4b5a69788796a5b4 --session customer-42 --after 17
    holdfast webhooks redeliver ep_0f1e2d3c4b5a69788796a5b4 --since 2h
    ```

    The process that delivers does it: a server, a worker or `holdfast webhooks run`. An endpoint
    that was stopped takes deliveries again. With `--json`, prints one JSON object.

    :param session: Deliver the events of this session again.
    :param thread: Thread of the session.
    :param after: Only events after this number.
    :param since: Deliver everything since this time: ISO date or time, or a duration such as 2h.
    """
    at = None if since is None else instant("--since", since, wall_clock())
    async with common.open() as store:
        hooks = _hooks(store, common)
        await hooks.redeliver(endpoint, session=session, thread=thread, after=after, since=at)
        shown = await hooks.get(endpoint)
    common.output().show(msgspec.to_builtins(shown), f"{endpoint} gets the events again")


async def rotate(endpoint: Endpoint, /, *, grace: str = "1d", common: Common = DEFAULTS) -> None:
    """Add a new secret to an endpoint and print it once.

    ```
    holdfast webhooks rotate ep_0f1e2d3c4b5a69788796a5b4 --grace 2d
    ```

    With `--json`, prints one JSON object.

    :param grace: How long deliveries are signed with the old secret too.
    """
    left = seconds("--grace", grace)
    async with common.open() as store:
        made = await _hooks(store, common).rotate(endpoint, grace=left)
    _show_new(common, made)


async def remove(endpoint: Endpoint, /, *, common: Common = DEFAULTS) -> None:
    """Remove an endpoint with its secrets and positions.

    ```
    holdfast webhooks remove ep_0f1e2d3c4b5a69788796a5b4
    ```

    With `--json`, prints one JSON object.
    """
    async with common.open() as store:
        await _hooks(store, common).remove(endpoint)
    common.output().show({"id": endpoint, "removed": True}, f"{endpoint} is removed")


async def run(
    *, network: Network = (), all_tenants: bool = False, common: Common = DEFAULTS
) -> None:
    """Deliver to the endpoints of the tenant until Ctrl-C.

    ```
    holdfast webhooks run
    ```

    Any number of processes may deliver, servers included. With `--json`, prints nothing.

    :param all_tenants: Deliver to the endpoints of all tenants.
    """
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    tenants = "all" if all_tenants else [common.tenant]
    async with common.open() as store, Deliverer(store, tenants=tenants, networks=network):
        common.output().note("delivering; press Ctrl-C to stop")
        await stop.wait()


def _show_new(common: Common, made: NewWebhook) -> None:
    out = common.output()
    out.show({"secret": made.secret, **msgspec.to_builtins(made.endpoint)}, made.secret)
    out.note(f"save this secret now: it is not shown again. The endpoint is {made.endpoint.id}")
