"""Deliveries over real HTTP: what arrives, in which order, and what happens when it does not."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, cast

import msgspec
import pytest
from standardwebhooks import WebhookVerificationError

import holdfast
from holdfast import InvalidValue, Sessions, Store
from holdfast.environment import Environment, use, wall_clock
from holdfast.events import Key, NewEvent
from holdfast.harness import settle_pending
from holdfast.log.catalog import Pending, PendingQuery
from holdfast.redact import Redactor
from holdfast.stores.wrapped import WrappedStore
from holdfast.webhooks import NewWebhook, Webhooks, new_secret
from holdfast.webhooks import log_delivery as back_off
from holdfast.webhooks.delivery import EndpointDelivery

from .receiver import Delivery, receiving
from .scene import delivering, say, sender

KINDS = ["memory", "sqlite", "file", "postgres", "mongodb", "sqlite+vault"]
MESSAGES = ["message.received"]
T = TypeVar("T")


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first retries come soon; what is tried again later doubles as always."""
    monkeypatch.setattr(back_off, "FIRST", 0.05)
    monkeypatch.setattr("holdfast.webhooks.delivery.PAUSE", 0.05)
    monkeypatch.setattr("holdfast.webhooks.endpoints.LEAST_GIVE_UP", 1)


class Ahead(Environment):
    """A clock that a test sets forward."""

    ahead = 0

    def time_ns(self) -> int:
        return super().time_ns() + self.ahead * 10**9


async def inbox(store: Store) -> list[Pending]:
    return (await store.pending(PendingQuery(tenant="main"))).items


async def until(check: Callable[[], Awaitable[T]]) -> T:
    """Wait until a check returns something true."""
    while True:
        if found := await check():
            return found
        await asyncio.sleep(0.01)


async def opened(store: Store) -> Pending:
    """Wait until an item is open."""
    return (await until(lambda: inbox(store)))[0]


@pytest.mark.parametrize("store", KINDS, indirect=True)
async def test_events_arrive_signed_in_order_and_once_per_session(store: Store) -> None:
    async with receiving() as receiver:
        made = await Webhooks(store).add(receiver.url, kinds=MESSAGES)
        for turn in range(3):
            for session in ("a", "b", "c"):
                await say(store, session, f"hello {turn}")
        async with delivering(store):
            await receiver.until(lambda it: len(it.accepted) == 9)
            await say(store, "a", "late")
            await receiver.until(lambda it: len(it.accepted) == 10)
        assert [place for place in receiver.places() if place[0] == "a"] == [
            ("a", "main", seq) for seq in (2, 3, 4, 5)
        ]
        assert len({one.id for one in receiver.got}) == len(receiver.got) == 10
        said = receiver.got[0].verified(made.secret)
        assert said["type"] == "message.received"
        assert said["data"]["agent"] == "shop"
        with pytest.raises(WebhookVerificationError):
            receiver.got[0].verified(new_secret())
        forged = Delivery(
            "/", {**receiver.got[0].headers, "webhook-id": "msg_0"}, receiver.got[0].body
        )
        with pytest.raises(WebhookVerificationError):
            forged.verified(made.secret)


async def test_an_endpoint_gets_what_its_filters_let_through(store: Store) -> None:
    async with receiving() as receiver, receiving() as other:
        hooks = Webhooks(store)
        await hooks.add(receiver.url, kinds=["message.*"], agents=["shop"], labels=["vip"])
        await hooks.add(other.url)
        await say(store, "plain", "no")
        await say(store, "bank", "no", agent="bank", labels=["vip"])
        await say(store, "vip", "yes", labels=["vip"])
        async with delivering(store):
            await receiver.until(lambda it: it.places() == [("vip", "main", 2)])
            await other.until(lambda it: len(it.accepted) == 6)
        assert {one.json["type"] for one in other.accepted} == {
            "session.created",
            "message.received",
        }


async def test_only_events_since_the_endpoint_was_added_are_delivered(store: Store) -> None:
    await say(store, "a", "before")
    await asyncio.sleep(0.002)  # the next millisecond
    async with receiving() as receiver:
        await Webhooks(store).add(receiver.url, kinds=MESSAGES)
        await say(store, "a", "after")
        await store.fork(
            Key("main", "a", "main"),
            "b",
            at=3,
            first=NewEvent.of("thread.forked", {"parent": "main", "at": 3}),
        )
        await say(store, "a", "in the fork", thread="b")
        async with delivering(store):
            await receiver.until(lambda it: len(it.accepted) == 2)
        assert {*receiver.places()} == {("a", "main", 3), ("a", "b", 5)}


async def test_a_change_that_is_no_activity_is_delivered_too(store: Store) -> None:
    async with receiving() as receiver:
        await Webhooks(store).add(receiver.url, kinds=["label.added", "session.expired"])
        async with delivering(store):
            await say(store, "a", "hello")
            await receiver.until(lambda it: it.got == [])
            await store.append(
                Key("main", "a", "main"), [NewEvent.of("label.added", {"label": "vip"})]
            )
            await receiver.until(lambda it: len(it.accepted) == 1)
            await Sessions(store).expire("a")
            await receiver.until(lambda it: len(it.accepted) == 2)


async def test_a_failed_delivery_holds_back_its_log_and_no_other(store: Store) -> None:
    failed: list[str] = []

    def answer(got: Delivery) -> int:
        if got.place[0] == "a" and len(failed) < 3:
            failed.append(got.id)
            return 500
        return 200

    async with receiving(answer) as receiver:
        hooks = Webhooks(store)
        made = await hooks.add(receiver.url, kinds=MESSAGES)
        await say(store, "a", "1", "2", "3")
        await say(store, "b", "1", "2")
        async with delivering(store):
            await receiver.until(lambda it: len(it.accepted) == 5)
        assert [place[2] for place in receiver.places() if place[0] == "a"] == [2, 3, 4]
        assert len({*failed}) == 1, "the event is sent again under the same id"
        assert (await hooks.get(made.endpoint.id)).state == "active"


async def test_while_an_endpoint_is_down_it_gets_few_requests_and_then_everything(
    store: Store,
) -> None:
    up: list[bool] = []
    async with receiving(lambda _: 200 if up else 503) as receiver:
        hooks = Webhooks(store)
        made = await hooks.add(receiver.url, kinds=MESSAGES)
        for number in range(40):
            await say(store, f"s{number}", "1", "2")
        async with delivering(store):
            await receiver.until(lambda it: len(it.got) >= 12)
            known = await hooks.get(made.endpoint.id)
            assert (known.state, known.error) == ("failing", "HTTP status 503")
            up.append(True)
            await receiver.until(lambda it: len(it.accepted) == 80)
        for number in range(40):
            assert [p[2] for p in receiver.places() if p[0] == f"s{number}"] == [2, 3]


async def test_a_receiver_that_stalls_is_tried_again(store: Store) -> None:
    stalled: list[str] = []

    def answer(got: Delivery) -> int | str:
        stalled.append(got.id)
        return "stall" if len(stalled) == 1 else 200

    async with receiving(answer) as receiver:
        await Webhooks(store).add(receiver.url, kinds=MESSAGES)
        await say(store, "a", "1")
        async with delivering(store, sender=sender(timeout=0.2)):
            await receiver.until(lambda it: len(it.accepted) == 1)
        assert stalled == [stalled[0]] * 2


async def test_410_stops_the_endpoint_until_an_operator_decides(store: Store) -> None:
    answers = [410]
    async with receiving(lambda _: answers.pop() if answers else 200) as receiver:
        hooks = Webhooks(store)
        made = await hooks.add(receiver.url, kinds=MESSAGES)
        await say(store, "a", "1")
        async with delivering(store):
            item = await opened(store)
            assert "410" in str(item.title)
            assert (await hooks.get(made.endpoint.id)).state == "stopped"
            await say(store, "a", "2")
            await settle_pending(
                store, Key("main", item.session, "main"), None, "approved", actor="ann"
            )
            await receiver.until(lambda it: len(it.accepted) == 2)
        assert [place[2] for place in receiver.places()] == [2, 3], "nothing is lost"
        assert (await hooks.get(made.endpoint.id)).state == "active"


@pytest.mark.parametrize("store", ["sqlite", "postgres"], indirect=True)
@pytest.mark.parametrize("outcome", ["approved", "denied"])
async def test_a_dead_letter_is_in_the_inbox_and_an_operator_decides(
    store: Store, outcome: Any
) -> None:
    refused = [True]
    async with receiving(lambda got: 400 if refused and got.place[2] == 2 else 200) as receiver:
        hooks = Webhooks(store)
        made = await hooks.add(receiver.url, kinds=MESSAGES, give_up=1)
        await say(store, "a", "refused", "fine")
        async with delivering(store):
            item = await opened(store)
            assert "HTTP status 400" in str(item.title)
            await receiver.until(lambda it: it.places() == [("a", "main", 3)])
            assert [one.seq for one in await hooks.dead(made.endpoint.id)] == [2]
            refused.clear()
            await settle_pending(store, Key("main", item.session, "main"), item.id, outcome)
            await until(lambda: settled(hooks, made))
            await say(store, "a", "more")
            await receiver.until(lambda it: ("a", "main", 4) in it.places())
        again = [("a", "main", 2)] if outcome == "approved" else []
        assert sorted(receiver.places()) == [*again, ("a", "main", 3), ("a", "main", 4)]


async def settled(hooks: Webhooks, made: NewWebhook) -> bool:
    """Whether the endpoint has no dead letters."""
    return not await hooks.dead(made.endpoint.id)


async def test_a_dead_letter_that_fails_again_is_asked_about_again(store: Store) -> None:
    async with receiving(lambda _: 400) as receiver:
        hooks = Webhooks(store)
        made = await hooks.add(receiver.url, kinds=MESSAGES, give_up=1)
        await say(store, "a", "refused")
        async with delivering(store):
            item = await opened(store)
            await hooks.redeliver(made.endpoint.id)

            async def another() -> bool:
                return any(one.id != item.id for one in await inbox(store))

            await until(another)
        assert len(await hooks.dead(made.endpoint.id)) == 1


async def test_events_are_delivered_again_from_any_point(store: Store) -> None:
    async with receiving() as receiver:
        hooks = Webhooks(store)
        id = (await hooks.add(receiver.url, kinds=MESSAGES)).endpoint.id
        begun = wall_clock()
        await say(store, "a", "1", "2", "3")
        await say(store, "b", "1")
        async with delivering(store):
            await receiver.until(lambda it: len(it.accepted) == 4)
            await hooks.redeliver(id, session="a", after=2)
            await receiver.until(lambda it: len(it.accepted) == 6)
            assert [one.place[2] for one in receiver.accepted[4:]] == [3, 4]
            await hooks.redeliver(id, since=begun)
            await receiver.until(lambda it: len(it.accepted) == 10)
        assert len({one.id for one in receiver.accepted}) == 4, "under the ids that they had"
        with pytest.raises(InvalidValue):
            await hooks.redeliver(id, session="a", since=begun)


async def test_delivering_again_from_a_later_point_skips_nothing(store: Store) -> None:
    async with receiving() as receiver:
        hooks = Webhooks(store)
        id = (await hooks.add(receiver.url, kinds=MESSAGES)).endpoint.id
        await say(store, "a", "1", "2", "3")
        await hooks.redeliver(id, session="a", after=3)
        await asyncio.sleep(0.002)  # the next millisecond
        await hooks.redeliver(id, since=wall_clock())
        async with delivering(store):
            await receiver.until(lambda it: len(it.accepted) == 3)
        assert [one.place[2] for one in receiver.accepted] == [2, 3, 4]


async def test_a_secret_is_replaced_without_a_gap(store: Store) -> None:
    with use(clock := Ahead()):
        async with receiving() as receiver:
            hooks = Webhooks(store)
            old = await hooks.add(receiver.url, kinds=MESSAGES)
            new = await hooks.rotate(old.endpoint.id, grace=60)
            assert new.secret != old.secret
            async with delivering(store):
                await say(store, "a", "1")
                await receiver.until(lambda it: len(it.accepted) == 1)
                assert receiver.got[0].headers["webhook-signature"].count("v1,") == 2
                receiver.got[0].verified(old.secret)
                receiver.got[0].verified(new.secret)
                clock.ahead += 61
                await say(store, "a", "2")
                await receiver.until(lambda it: len(it.accepted) == 2)
            assert receiver.got[1].headers["webhook-signature"].count("v1,") == 1
            await hooks.rotate(old.endpoint.id)
            events = store.read(Key("~webhooks:main", old.endpoint.id, "secrets"))
            kept = [bytes(event.data).decode() async for event in events]
            assert not any(old.secret in data for data in kept), "an old secret is erased"


async def gone(store: Store, made: NewWebhook) -> bool:
    """Whether nothing is left of an endpoint."""
    return await store.row(Key("~webhooks:main", made.endpoint.id, "main")) is None


async def test_an_endpoint_that_is_removed_gets_nothing_and_leaves_nothing(store: Store) -> None:
    async with receiving() as receiver:
        hooks = Webhooks(store)
        one, other = [await hooks.add(receiver.url, kinds=MESSAGES) for _ in range(2)]
        async with delivering(store):
            await say(store, "a", "1")
            await receiver.until(lambda it: len(it.accepted) == 2)
            for made in (one, other):
                await hooks.remove(made.endpoint.id)
            assert await hooks.list() == []
            await until(lambda: gone(store, one))
        alone = await hooks.add(receiver.url)
        await hooks.remove(alone.endpoint.id)
        assert await store.row(Key("~webhooks:main", alone.endpoint.id, "secrets")) is None
        with pytest.raises(InvalidValue):
            await hooks.get(one.endpoint.id)


@pytest.mark.parametrize("store", ["sqlite"], indirect=True)
async def test_of_many_deliverers_one_has_the_endpoint(store: Store) -> None:
    async with receiving() as receiver, contextlib.AsyncExitStack() as stack:
        await Webhooks(store).add(receiver.url, kinds=MESSAGES)
        for _ in range(3):
            await stack.enter_async_context(delivering(store, ttl=1))
        for number in range(20):
            await say(store, f"s{number}", "1", "2")
        await receiver.until(lambda it: len(it.accepted) >= 40)
        assert len(receiver.got) == 40, "no delivery is made twice"


async def test_secrets_in_events_and_of_endpoints_are_not_in_bodies_logs_or_lists(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", "holdfast")
    leaked = new_secret()
    async with receiving(lambda got: 500 if got.place[0] == "b" else 200) as receiver:
        hooks = Webhooks(store)
        made = await hooks.add(receiver.url + "?key=hunter2hunter2", kinds=MESSAGES)
        await say(store, "a", f"my key is {leaked}")
        await say(store, "b", "1")
        async with delivering(store):
            await receiver.until(lambda it: len(it.got) >= 2)
        (one,) = receiver.accepted
        assert leaked not in one.body.decode()
        assert made.secret not in caplog.text
        assert made.secret not in repr((made, await hooks.list()))
        assert made.secret.encode() not in msgspec.json.encode(await hooks.list())


async def test_what_is_deleted_is_forgotten(store: Store) -> None:
    async with receiving(lambda _: 500) as receiver:
        hooks = Webhooks(store)
        made = await hooks.add(receiver.url, kinds=MESSAGES)
        await say(store, "a", "1")
        async with delivering(store):
            await receiver.until(lambda it: len(it.got) >= 1)
            await Sessions(store).delete("a")

            async def forgotten() -> bool:
                return not (await hooks.get(made.endpoint.id)).failing

            await until(forgotten)


class Counting(WrappedStore):
    """Counts the calls of a store."""

    calls = 0

    def _pass_on(self, method: str, *args: Any, **options: Any) -> Any:
        self.calls += 1
        return super()._pass_on(method, *args, **options)


async def test_an_idle_endpoint_costs_the_same_with_few_and_with_many_sessions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All but the review, whose share of a second is fixed."""
    monkeypatch.setattr("holdfast.webhooks.feed.REVIEW_SECONDS", 1e9)
    costs = []
    for count in (3, 150):
        async with holdfast.connect("memory:") as inner, receiving() as receiver:
            store = cast(Store, counting := Counting(inner))
            made = await Webhooks(store).add(receiver.url, kinds=["run.finished"])
            for number in range(count):
                await say(store, f"s{number}", "1")
            lease = await store.acquire(Key("~webhooks:main", made.endpoint.id, "main"), "me")
            one = EndpointDelivery(store, lease, sender(), Redactor(), poll=1)
            while await one.round():
                pass
            counting.calls = 0
            for _ in range(3):
                assert not await one.round()
            costs.append(counting.calls)
    assert costs[0] == costs[1] <= 15
