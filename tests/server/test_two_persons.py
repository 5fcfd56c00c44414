"""With two persons, whoever asked decides nothing: neither by another thread, nor by other
arguments."""

from __future__ import annotations

from typing import Any

from holdfast import Agent, SubAgent
from holdfast.models.scripted import Say, ScriptedModel, Use

from .scene import Api, refund, serving, settings

BOSS, CLERK = "boss@acme+sessions:all", "clerk@acme+sessions:all"


async def working(api: Api) -> str:
    """The thread of the sub-agent that works for a session."""

    def thread(display: Any) -> str | None:
        shown = [one.get("thread") for one in (display.get("subagents") or {}).values()]
        return next(filter(None, shown), None)

    found = thread(await api.until("/sessions/one/display", thread))
    assert found is not None
    return found


async def test_what_a_sub_agent_asks_is_not_decided_by_who_told_it_to() -> None:
    clerk = SubAgent("clerk", "refunds", instructions="Be a clerk.", tools=["refund"])
    agent = Agent("shop", instructions="Help.", tools=[refund], subagents=[clerk])
    said: dict[str, Any] = {
        "I paid": [Say("", calls=[Use("subagent", agent="clerk", task="Look.")]), "Done."],
        "Refund": [Say("", calls=[Use("refund", order="666")]), "Refunded."],
        "Look": Say("one two three four five six seven eight", delay=0.3),
    }
    harness = {"default_model": ScriptedModel.by_input(said)}
    made = settings(two_person=True, agents=[agent], harness=harness)
    async with serving(made) as api:
        await api("PUT", "/sessions/one")
        await api("POST", "/sessions/one/messages", {"content": "I paid twice."})
        thread = await working(api)
        steered = {"content": "Refund it.", "busy": "steer"}
        await api("POST", f"/sessions/one/messages?thread={thread}", steered, by=BOSS)
        asks = await api.until("/sessions/one/pending", lambda found: found["items"])
        path = f"/sessions/one/pending/{asks['items'][0]['id']}"
        for through in (thread, "main"):
            for by in (BOSS, "ann@acme+sessions:all"):
                for verb, body in (("approve", None), ("deny", None), ("extend", {"seconds": 9})):
                    where = f"{path}/{verb}?thread={through}"
                    await api.fails("forbidden", "POST", where, body, by=by)
        await api("POST", f"{path}/approve", by=CLERK)


async def test_who_decides_does_not_say_what_is_called() -> None:
    async with serving(settings(two_person=True)) as api:
        item = await api.ask_for_refund("one")
        path = f"/sessions/one/pending/{item}/approve"
        own = {"arguments": {"order": "mine", "cents": 999_999}}
        await api.fails("forbidden", "POST", path, own, by=CLERK)
        assert (await api("GET", "/sessions/one/pending"))["items"][0]["id"] == item
        assert (await api("POST", path, {"reason": "as asked"}, by=CLERK))["outcome"] == "approved"
