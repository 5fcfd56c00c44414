"""Agents: what they bundle, how they describe themselves, and that faults are found at once."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from holdfast import (
    Agent,
    Context,
    Harness,
    InvalidAgent,
    InvalidValue,
    Mode,
    Reading,
    Tool,
    ToolContext,
    context,
    hook,
    tool,
)
from holdfast.models.scripted import Say, Use

from .scene import helper, script, serve


class Noted(msgspec.Struct):
    text: str


@tool(category="money", risk="write", approval="ask")
async def refund(order: str, cents: int = 100) -> str:
    """Give money back."""
    return f"refunded {order}"


@tool
async def look(order: str) -> str:
    """Look an order up."""
    return f"order {order}"


@context(label="Weather", priority=2)
def weather(reading: Reading) -> str:
    return "rain"


@hook("run.finished")
def note(acting: Any, event: Any) -> None: ...


def whole() -> Agent:
    return Agent(
        "Support Desk",
        instructions="Help people.",
        tools=[look],
        modes=[Mode("talk"), Mode("pay", tools=[refund], model="scripted/demo", approval="ask")],
        initial_mode="talk",
        contexts=[weather],
        hooks=[note],
        events={"note.taken": Noted},
        state={"visits": 0},
        description="Answers customers.",
    )


@pytest.mark.parity("harness-kernel", 1, 54)
async def test_the_manifest_lists_all_parts() -> None:
    async with serve(whole(), "hi") as harness:
        manifest = harness.manifest
    assert manifest["key"] == "support-desk"
    assert manifest["label"] == "Support Desk"
    assert manifest["description"] == "Answers customers."
    assert manifest["initial_mode"] == "talk"
    assert manifest["modes"] == [
        {
            "name": "talk",
            "label": None,
            "model": None,
            "approval": "tool",
            "tools": ["look"],
            "contexts": ["weather"],
        },
        {
            "name": "pay",
            "label": None,
            "model": "scripted/demo",
            "approval": "ask",
            "tools": ["look", "refund"],
            "contexts": ["weather"],
        },
    ]
    tools = {item["name"]: item for item in manifest["tools"]}
    assert sorted(tools) == ["look", "refund"]
    assert (tools["refund"]["risk"], tools["refund"]["category"]) == ("write", "money")
    assert tools["refund"]["schema"]["required"] == ["order"]
    assert manifest["contexts"] == [
        {"name": "weather", "label": "Weather", "priority": 2, "role": "system"}
    ]
    assert manifest["hooks"] == [{"kind": "run.finished", "name": "note"}]
    assert manifest["events"] == ["note.taken"]
    assert manifest["state"] == {"visits": 0}
    msgspec.json.encode(manifest)  # plain values, whatever they are made of


@pytest.mark.parity("harness-kernel", 1)
async def test_an_agent_of_all_parts_runs() -> None:
    async with serve(whole(), "hello") as harness:
        session = await harness.get_or_create("s")
        result = await session.send("hi")
        assert (result.status, result.text, result.agent) == ("done", "hello", "support-desk")
        row = await harness.store.row(session.key)
        assert row is not None
        assert row.agent == "support-desk"


@pytest.mark.parity("harness-kernel", 2)
@pytest.mark.parametrize(
    ("label", "key"),
    [
        ("My Agent", "my-agent"),
        ("myAgent", "my-agent"),
        ("my_agent", "my-agent"),
        ("  Refund & Return Bot!  ", "refund-return-bot"),
        ("¿?", "agent"),
    ],
)
def test_the_key_is_made_of_the_label(label: str, key: str) -> None:
    assert Agent(label, instructions="x").key == key
    assert Agent(label, instructions="x", key="mine").key == "mine"


def _fault(agent: Agent, **settings: Any) -> list[str]:
    settings.setdefault("default_model", script("hi"))
    with pytest.raises(InvalidAgent) as caught:
        Harness(agent, **settings)
    return caught.value.faults


@pytest.mark.parity("harness-kernel", 3)
def test_every_fault_is_listed_when_the_harness_is_made() -> None:
    broken = Agent(
        " ",
        tools=[look, look],
        modes=[Mode("a"), Mode("a", model="nothing")],
        initial_mode="b",
        events={"run.mine": Noted},
        state=lambda: {"x": object()},
    )
    found = "\n".join(_fault(broken))
    for part in (
        "label",
        "mode 'a' is declared twice",
        "initial mode 'b'",
        "no instructions",
        "two tools 'look'",
        "'run.mine'",
        "initial state",
        "model of mode 'a'",
    ):
        assert part in found, part


@pytest.mark.parity("harness-kernel", 3)
def test_a_harness_without_a_model_is_refused() -> None:
    with pytest.raises(InvalidAgent, match="default_model"):
        Harness(helper())


@pytest.mark.parity("harness-kernel", 3)
@pytest.mark.parametrize("ref", ["scripted/other", "model", "/x", "x/"])
def test_a_model_that_nobody_serves_is_refused(ref: str) -> None:
    with pytest.raises(InvalidAgent):
        Harness(helper(), providers=[script("hi")], default_model=ref)


@pytest.mark.parity("harness-kernel", 3)
def test_only_an_agent_can_be_served() -> None:
    with pytest.raises(InvalidValue, match="Agent"):
        Harness({"label": "x"}, default_model=script("hi"))  # type: ignore[arg-type]


@pytest.mark.parity("harness-kernel", 4)
def test_two_modes_of_one_name_are_refused() -> None:
    assert _fault(helper(modes=[Mode("a"), Mode("b"), Mode("a")])) == ["mode 'a' is declared twice"]


@pytest.mark.parity("harness-kernel", 5)
def test_an_unknown_first_mode_is_refused() -> None:
    (fault,) = _fault(helper(modes=[Mode("a")], initial_mode="b"))
    assert "'b'" in fault


@pytest.mark.parity("harness-kernel", 6)
def test_a_mode_that_nobody_instructs_is_refused() -> None:
    modes = [Mode("told", instructions="Do."), Mode("untold")]
    (fault,) = _fault(Agent("Helper", modes=modes))
    assert "'untold'" in fault
    with pytest.raises(InvalidAgent):
        serve(Agent("Helper"), "hi")
    serve(Agent("Helper", modes=modes[:1]), "hi")


@pytest.mark.parity("harness-kernel", 22)
def test_two_tools_of_one_name_in_a_mode_are_refused() -> None:
    (fault,) = _fault(helper(tools=[look], modes=[Mode("a", tools=[look.replace()]), Mode("b")]))
    assert fault == "mode 'a' has two tools 'look'"
    serve(helper(modes=[Mode("a", tools=[look]), Mode("b", tools=[look])]), "hi")


@pytest.mark.parity("harness-kernel", 22)
def test_what_is_no_tool_is_refused() -> None:
    (fault,) = _fault(helper(tools=[len]))
    assert "@tool" in fault


@pytest.mark.parity("harness-kernel", 3, 33)
def test_a_context_that_would_go_nowhere_known_is_refused() -> None:
    odd = Context("odd", lambda reading: "x", role="secret")  # type: ignore[arg-type]
    (fault,) = _fault(helper(contexts=[odd]))
    assert "'secret'" in fault


@pytest.mark.parity("harness-kernel", 7)
@pytest.mark.parametrize("form", ["text", "function", "async"])
async def test_instructions_are_text_or_a_function(form: str) -> None:
    def plain(reading: Reading) -> str:
        return f"Be brief, {reading.session.session}, in {reading.mode}."

    async def later(reading: Reading) -> str:
        return plain(reading)

    told = {"text": "Be brief, s, in default.", "function": plain, "async": later}[form]
    model = script("hi")
    async with serve(Agent("Helper", instructions=told), default_model=model) as harness:  # type: ignore[arg-type]
        await (await harness.get_or_create("s")).send("hello")
    assert model.calls[0].system == "Be brief, s, in default."


@pytest.mark.parity("harness-kernel", 7)
async def test_a_mode_adds_its_instructions_and_they_are_made_anew_for_each_call() -> None:
    count = 0

    def counted(reading: Reading) -> str:
        nonlocal count
        count += 1
        return f"Call {count}."

    agent = helper(modes=[Mode("a", instructions=counted)], tools=[look])
    model = script(Say(calls=[Use("look", order="1")]), "done")
    async with serve(agent, default_model=model) as harness:
        await (await harness.get_or_create("s")).send("hello")
    assert [call.system for call in model.calls] == ["Help.\n\nCall 1.", "Help.\n\nCall 2."]


@pytest.mark.parity("harness-kernel", 53)
async def test_resources_are_handed_on_as_they_are() -> None:
    class Database: ...

    database, seen = Database(), []

    @tool
    async def peek(context: ToolContext) -> str:
        """Look."""
        seen.append(context.resources)
        return "ok"

    @context
    def peeked(reading: Reading) -> None:
        seen.append(reading.resources)

    def told(reading: Reading) -> str:
        seen.append(reading.resources)
        return "Help."

    @hook("tool.finished")
    def hooked(acting: Any, event: Any) -> None:
        seen.append(acting.resources)

    agent = Agent("A", instructions=told, tools=[peek], contexts=[peeked], hooks=[hooked])
    steps = Say(calls=[Use("peek")]), "done"
    async with serve(agent, *steps, resources=database) as harness:
        await (await harness.get_or_create("s")).send("hello")
    assert len(seen) == 6
    assert all(item is database for item in seen)


def test_a_tool_still_is_its_function() -> None:
    assert isinstance(look, Tool)
    assert look.name == "look"
