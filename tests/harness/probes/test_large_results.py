"""A result that is too large for a prompt: the model reads its head and tail, and reads on."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast import Agent, BlobNotFound, BlobRef, Harness, InvalidValue, ToolContext, connect, tool
from holdfast.bundle import export_bundle, replay
from holdfast.harness.tools import Happened, ToolResult
from holdfast.models import Say, ScriptedModel, Use
from holdfast.models.port import FromTools, FromUser, ModelCall, Text

from ..kernel.scene import only
from .scene import Bank, ended, place, taken_up

WORDS = "".join(f"line {n}\n" for n in range(20_000))
KINDS = ("memory", "sqlite", "postgres")


def reader(value: Any = WORDS, **options: Any) -> Agent:
    @tool(**options)
    async def read_all() -> Any:
        """Read all."""
        return value

    return Agent("shop", instructions="Help.", tools=[read_all])


def read_on(**arguments: Any) -> Any:
    """A step of a model that reads on in the result of the call that the preview names."""

    def step(call: ModelCall) -> Say:
        texts = [r.content for m in call.messages if isinstance(m, FromTools) for r in m.results]
        id = next(text for text in texts if "call='" in text).split("call='")[1].split("'")[0]
        return Say(calls=[Use("read_result", **{"call": id, **arguments})])

    return step


def model(*steps: Any) -> ScriptedModel:
    return ScriptedModel([Say(calls=[Use("read_all")]), *steps, "Done."], per_turn=True)


def results(call: ModelCall) -> list[str]:
    return [r.content for m in call.messages if isinstance(m, FromTools) for r in m.results]


@pytest.mark.parametrize("kind", KINDS)
async def test_a_large_result_is_a_blob_and_the_model_reads_on(kind: str, tmp_path: Path) -> None:
    script = model(read_on(offset=6_000), read_on(search="line 17777\n"))
    async with (
        connect(place(kind, tmp_path)) as store,
        Harness(reader(), default_model=script, store=store) as harness,
    ):
        session = await harness.get_or_create("s")
        assert (await session.send("go")).text == "Done."
        first, *_ = only(await session.events(), "tool.finished")
        (about,) = first["stored"]
        assert "result" not in first
        assert about["length"] == len(WORDS)
        data = await store.get_blob(session.key.scope, BlobRef(about["sha256"], 0))
        assert data.decode() == WORDS
        shown, page, hits = results(script.calls[-1])
        assert shown.startswith(WORDS[:6_000])
        assert shown.endswith(WORDS[-2_000:])
        assert f"{len(WORDS) - 8_000} of {len(WORDS)} characters left out" in shown
        assert page.partition("]\n")[2] == WORDS[6_000:16_000]
        assert f"[offset {WORDS.index('line 17777')}]" in hits
        assert session.display.get().tools[first["call"]].stored == [about]
        names = [[tool.name for tool in call.tools] for call in script.calls]
        assert names == [["read_all"], *[["read_all", "read_result"]] * 3]
        await harness.delete("s")
        with pytest.raises(BlobNotFound):
            await store.get_blob(session.key.scope, BlobRef(about["sha256"], 0))


async def test_a_smaller_result_is_no_blob_and_no_tool_is_offered() -> None:
    script = model()
    async with Harness(reader("x" * 50_000), default_model=script) as harness:
        session = await harness.get_or_create("s")
        await session.send("go")
        assert "stored" not in only(await session.events(), "tool.finished")[0]
        assert [[tool.name for tool in call.tools] for call in script.calls] == [["read_all"]] * 2


@pytest.mark.parametrize(
    ("value", "media_type", "kept"),
    [
        ([{"n": n} for n in range(9_000)], "application/json", None),
        (ToolResult(content=WORDS, data={"rows": 20_000}), "text/plain", {"rows": 20_000}),
    ],
)
async def test_other_results_are_stored_as_the_text_that_the_model_reads(
    value: Any, media_type: str, kept: Any
) -> None:
    async with Harness(reader(value), default_model=model()) as harness:
        session = await harness.get_or_create("s")
        await session.send("go")
        (end,) = only(await session.events(), "tool.finished")
        assert (end["stored"][0]["media_type"], end.get("result")) == (media_type, kept)


async def test_limits_are_of_the_tool_or_the_harness_and_none_stores_nothing() -> None:
    for of_tool, of_harness, stored in (
        (1_000, None, True),
        (10**9, 1_000, False),
        (None, None, False),
    ):
        agent = reader("x" * 2_000, result_limit=of_tool)
        async with Harness(agent, default_model=model(), result_limit=of_harness) as harness:
            session = await harness.get_or_create("s")
            await session.send("go")
            assert ("stored" in only(await session.events(), "tool.finished")[0]) == stored
    for wrong in (0, 999, 1e4, True):
        with pytest.raises(InvalidValue, match="result_limit"):
            reader(result_limit=wrong)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"call": "../other"}, "there is no stored result of call '../other'"),
        ({"offset": -1}, "offset"),
        ({"offset": 1 << 39}, "is past the end"),
        ({"offset": 1 << 50}, "offset"),
        ({"offset": "7"}, "offset"),
        ({"search": ""}, "search"),
        ({"search": "x" * 201}, "search"),
        ({"search": "(a+)+$"}, "'(a+)+$' does not occur"),
        ({"search": "line", "offset": 1 << 39}, "does not occur"),
        ({"search": "line"}, "more places: search on with offset="),
    ],
)
async def test_hostile_arguments_get_an_answer(arguments: dict[str, Any], said: str) -> None:
    script = model(read_on(**arguments))
    async with Harness(reader(), default_model=script) as harness:
        assert (await harness.send("s", "go")).text == "Done."
    answer = results(script.calls[-1])[-1]
    assert said in answer
    assert len(answer) < 20_000


async def test_an_agents_own_tool_of_that_name_is_left_alone() -> None:
    @tool
    async def read_result() -> str:
        """Mine."""
        return "mine"

    @tool
    async def read_all() -> str:
        """Read all."""
        return WORDS

    agent = Agent("shop", instructions="Help.", tools=[read_all, read_result])
    script = model(Say(calls=[Use("read_result")]))
    async with Harness(agent, default_model=script) as harness:
        await harness.send("s", "go")
    assert results(script.calls[-1])[1] == "mine"
    assert "read on with" not in results(script.calls[-1])[0]


async def test_a_nested_call_returns_the_whole_result_and_logs_a_preview() -> None:
    seen: list[int] = []

    @tool
    async def outer(context: ToolContext) -> str:
        """Call the other."""
        inner = await context.invoke("read_all")
        seen.append(len(inner.content))
        return "short"

    agent = Agent("shop", instructions="Help.", tools=[outer, *reader().tools])
    script = ScriptedModel([Say(calls=[Use("outer")]), "Done."])
    async with Harness(agent, default_model=script) as harness:
        session = await harness.get_or_create("s")
        await session.send("go")
        inner, _ = only(await session.events(), "tool.finished")
        assert inner["stored"][0]["length"] == len(WORDS)
    assert seen == [len(WORDS)]
    assert [tool.name for tool in script.calls[-1].tools] == ["outer", "read_all"]


async def test_what_a_probe_found_is_stored_too() -> None:
    async with taken_up(Bank(Happened(WORDS))) as session:
        await session.wait()
        (end,) = only(await session.events(), "tool.finished")
        assert end["stored"][0]["length"] == len(WORDS)
        assert (await ended(session))[0][0] == "ok"


async def test_the_prompt_of_another_process_is_the_same_to_the_byte(tmp_path: Path) -> None:
    script = asked_twice()
    place = f"sqlite:{tmp_path}/live.db"
    async with Harness(reader(), default_model=script, store=place) as harness:
        session = await harness.get_or_create("s")
        await session.send("go")
        with contextlib.closing(sqlite3.connect(tmp_path / "live.db")) as file:
            file.execute("VACUUM INTO ?", [f"{tmp_path}/copy.db"])
        await session.send("well?")
    told = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", __name__, f"sqlite:{tmp_path}/copy.db"), stdout=subprocess.PIPE
    )
    out, _ = await told.communicate()
    assert out.decode().strip() == prompt(script.calls[-1])
    assert script.calls[-1].messages[-1] == FromUser((Text("well?"),))
    assert "read_result" in [tool.name for tool in script.calls[-1].tools]


def asked_twice() -> ScriptedModel:
    first = [Say(calls=[Use("read_all")]), read_on(search="line 7\n"), "Done."]
    return ScriptedModel.by_input({"go": first, "well?": "Fine."})


def prompt(call: ModelCall) -> str:
    said = repr((call.system, call.messages, call.tools)).encode()
    return f"{len(said)} {hashlib.sha256(said).hexdigest()}"


async def restarted(place: str) -> None:
    """What another process does: it sends the next message, and prints what the model got."""
    script = asked_twice()
    async with Harness(reader(), default_model=script, store=place) as harness:
        await harness.send("s", "well?")
    print(prompt(script.calls[-1]))


async def test_a_bundle_has_the_whole_result_redacted_like_the_log() -> None:
    secret = "ghp_" + "a1B2c3D4e5F6g7H8i9J0" * 2
    text = WORDS[:30_000] + f"token={secret}\n" + WORDS[:30_000]
    async with connect("memory:") as store:
        async with Harness(reader(text), default_model=model(), store=store) as harness:
            session = await harness.get_or_create("s")
            await session.send("go")
        scope = session.key.scope
        local = await export_bundle((store, scope), "local")
        (about,) = only(local.events("main"), "tool.finished")[0]["stored"]
        assert local.blob(about["sha256"]).decode() == text
        bundle = await export_bundle((store, scope), attachments=True)
        (shown,) = only(bundle.events("main"), "tool.finished")[0]["stored"]
        assert secret not in (redacted := bundle.blob(shown["sha256"]).decode())
        assert redacted.startswith(WORDS[:30_000])
        # Other bundles have no attachments, unless they are asked for.
        without = await export_bundle((store, scope))
        (missing,) = only(without.events("main"), "tool.finished")[0]["stored"]
        with pytest.raises(BlobNotFound):
            without.blob(missing["sha256"])


async def test_a_conversation_with_stored_results_is_replayed() -> None:
    async with connect("memory:") as store:
        script = model(read_on(offset=6_000))
        async with Harness(reader(), default_model=script, store=store) as harness:
            session = await harness.get_or_create("s")
            await session.send("go")
        for agent in (None, reader()):
            replayed = await replay((store, session.key.scope), agent)
            assert replayed.first is None


if __name__ == "__main__":
    asyncio.run(restarted(sys.argv[1]))
