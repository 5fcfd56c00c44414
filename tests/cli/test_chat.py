"""`holdfast chat`, through pipes and in a terminal."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast.cli.agents import BUILT_IN, Choice, choose
from holdfast.harness.agents.agent import Agent
from holdfast.models import offline
from tests import forks
from tests.models.standin import Standin
from tests.models.standin import chat as said

from .agents import effects, shop_folder
from .conftest import Cli
from .programs import start
from .terminal import READY, Terminal

__all__ = ["shop_folder"]


def chat(*arguments: str, lines: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Chat through pipes."""
    words = ("-m", "holdfast.cli", "chat", *arguments)
    return forks.run(*words, input=lines, capture_output=True, text=True, cwd=cwd, timeout=60)


@pytest.fixture(autouse=True)
def _no_keys(shop_folder: Path) -> None:
    """Nothing here may ask a vendor."""


# Through pipes


def test_without_anything_it_answers_offline_and_makes_the_default_store(cli: Cli) -> None:
    ended = chat(lines="hello there\n")
    assert ended.returncode == 0, ended.stderr
    assert "You said: hello there" in ended.stdout
    assert ended.stderr.count("offline: ") == 1
    listed = cli("sessions", "--json").json["items"]
    assert [row["agent"] for row in listed] == [BUILT_IN.key]
    assert f"continue later with: holdfast chat {listed[0]['session']}" in ended.stderr


def test_a_session_goes_on_by_its_id(url: str) -> None:
    first = chat("s", "--store", url, lines="hello\n")
    assert "new session s\ncontinue later with: holdfast chat --store " in first.stderr
    second = chat("s", "--store", url, lines="again\n")
    assert "new session" not in second.stderr
    said = second.stdout.splitlines()
    assert said[0] == "user> hello"
    assert said[-1].endswith("You said: again")


def test_why_a_run_failed_is_shown_once(url: str) -> None:
    ended = chat("s", "--agent", "shop:serve", "--store", url, lines="fail\n")
    assert ended.returncode == 1
    assert ended.stdout == "[failed: model_failed: The model call failed.]\n"
    assert "reason: ModelError: scripted/shop: no more" in ended.stderr.splitlines()
    assert (ended.stdout + ended.stderr).count("no more") == 1


def test_a_missing_key_is_shown_once(url: str) -> None:
    ended = chat("s", "--model", "openai/gpt-5.1", "--store", url, lines="hello\n")
    assert ended.returncode == 1
    assert "The model call failed. Set OPENAI_API_KEY, or pass" in ended.stdout
    assert (ended.stdout + ended.stderr).count("OPENAI_API_KEY") == 1


def test_with_json_the_reason_is_a_line_on_stderr(url: str) -> None:
    ended = chat("s", "--agent", "shop:serve", "--store", url, "--json", lines="fail\n")
    (line,) = [line for line in ended.stderr.splitlines() if "no more" in line]
    assert line.startswith("ERROR holdfast: run failed: ModelError: scripted/shop: no more (")
    assert "no more" not in ended.stdout


def test_a_tool_that_raises_is_explained_once(url: str, shop_folder: Path) -> None:
    (shop_folder / "broken.py").write_text(
        "from holdfast import Agent, tool\n"
        "@tool\ndef charge() -> str:\n"
        '    """Charge."""\n'
        "    raise ValueError('declined, password=hunter2')\n"
        "agent = Agent('Till', instructions='Help.', tools=[charge], model='scripted/offline')\n"
    )
    ended = chat("s", "--agent", "broken:agent", "--store", url, lines="charge\n")
    (line,) = [line for line in ended.stderr.splitlines() if "declined" in line]
    assert line.startswith("WARNING holdfast: tool failed: ValueError: declined, password=[redac")
    assert "tool=charge session=s" in line
    assert "declined" not in ended.stdout


def test_a_program_that_logs_by_itself_is_left_alone(url: str, shop_folder: Path) -> None:
    own = "import logging\nlogging.basicConfig(format='OWN %(message)s')\nfrom shop import serve\n"
    (shop_folder / "own.py").write_text(own)
    ended = chat("s", "--agent", "own:serve", "--store", url, lines="fail\n")
    assert "OWN run failed: ModelError: scripted/shop: no more" in ended.stderr.splitlines()
    assert "ERROR holdfast" not in ended.stderr


def test_lines_of_a_pipe_answer_what_is_asked(url: str, cli: Cli) -> None:
    lines = "remember note=milk\ny\nremember note=bread\nn too dry\n"
    lines += 'remember note=x\ne {"note": "eggs"}\n'
    ended = chat("s", "--store", url, lines=lines)
    assert ended.returncode == 0, ended.stderr
    assert "? approval: remember(note='milk')" in ended.stdout
    assert "← denied: This call was denied. Reason: too dry" in ended.stdout
    events = cli("show", "s", "--all", "--json", "--store", url).json["events"]
    settled = [event for event in events if event["kind"] == "pending.settled"]
    assert [event["data"]["outcome"] for event in settled] == ["approved", "denied", "approved"]
    assert settled[2]["data"]["answer"] == {"arguments": {"note": "eggs"}}
    assert {event["actor"] for event in settled} == {events[1]["actor"]}
    kept = [event["data"]["set"] for event in events if event["kind"] == "state.changed"]
    assert kept == [{"notes": ["milk"]}, {"notes": ["milk", "eggs"]}]


def test_what_is_no_answer_or_no_json_decides_nothing(url: str, cli: Cli) -> None:
    ended = chat("s", "--store", url, lines="remember note=x\nmaybe\ne {\ne 3\n")
    assert ended.returncode == 0
    assert "invalid input" in ended.stderr
    assert ended.stderr.count("error: arguments ") == 2
    assert len(cli("pending", "--json", "--store", url).json["items"]) == 1


def test_two_questions_are_asked_one_after_the_other(url: str, shop_folder: Path) -> None:
    options = ("--agent", "shop:serve", "--store", url)
    ended = chat("s", *options, lines="refund both\ny\nn\n", cwd=shop_folder)
    assert ended.returncode == 0, ended.stderr
    assert effects(shop_folder) == ["1 1999"]
    assert "refunded 1999 of 1 and This call was denied." in ended.stdout


def test_what_was_left_waiting_is_asked_when_one_comes_back(url: str, shop_folder: Path) -> None:
    options = ("--agent", "shop:serve", "--store", url)
    assert chat("s", *options, lines="refund\n", cwd=shop_folder).returncode == 0
    assert effects(shop_folder) == []
    ended = chat("s", *options, lines="y\n", cwd=shop_folder)
    assert "refunded 1999 of 42" in ended.stdout
    assert effects(shop_folder) == ["42 1999"]


def test_a_failed_run_is_the_exit_code_of_a_pipe(url: str, shop_folder: Path) -> None:
    options = ("--agent", "shop:serve", "--store", url)
    failed = chat("s", *options, lines="fail\n", cwd=shop_folder)
    assert failed.returncode == 1
    assert "[failed: " in failed.stdout
    assert chat("t", *options, lines="hello\n", cwd=shop_folder).returncode == 0


def test_json_has_a_line_for_every_event_and_piece(url: str) -> None:
    ended = chat("s", "--store", url, "--json", lines="hello\n/mode\n")
    lines: list[dict[str, Any]] = [json.loads(line) for line in ended.stdout.splitlines()]
    assert lines[0]["session"]["id"] == "s"
    assert lines[0]["session"]["offline"] is True
    events = [line["event"] for line in lines if "event" in line]
    assert [event["kind"] for event in events][-1] == "run.finished"
    text = "".join(line["delta"]["text"] for line in lines if "delta" in line)
    said = [event["data"]["text"] for event in events if event["kind"] == "message.completed"]
    assert [text] == said
    assert "mode: default" in ended.stderr


def test_mode_and_model_are_switched(url: str, shop_folder: Path, cli: Cli) -> None:
    lines = "/mode night\n/mode\n/model scripted/offline\n/model\nhi\n/model nonsense\n/what\n"
    ended = chat("s", "--agent", "shop:support", "--store", url, lines=lines, cwd=shop_folder)
    assert "mode: night" in ended.stdout
    assert "model: scripted/offline" in ended.stdout
    assert "error: model is 'nonsense'" in ended.stderr
    assert "/abort /queue" in ended.stderr
    kinds = [e["kind"] for e in cli("show", "s", "--all", "--json", "--store", url).json["events"]]
    assert "mode.changed" in kinds
    assert "model.changed" in kinds


def test_a_message_may_begin_with_a_slash(url: str) -> None:
    assert "You said: /quit" in chat("--store", url, lines="//quit\n/quit\nnever\n").stdout


def test_stored_text_cannot_steer_the_terminal(url: str) -> None:
    ended = chat("s", "--store", url, lines="a\x1b[2Jb\n")
    assert "a\\x1b[2Jb" in ended.stdout


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("shop", "must be module:name, got 'shop'"),
        ("nowhere:x", "module 'nowhere' does not exist"),
        ("shop:nothing", "module 'shop' has no 'nothing'; its agents: support"),
        ("shop:broken", "'shop:broken' is int; pass an Agent"),
        ("shop:Agent", "'shop:Agent' is a class"),
        ("sick:agent", "'sick' cannot be imported (ZeroDivisionError: division by zero)"),
        ("json:loads", "the harness cannot be created (TypeError: "),
        ("builtins:dict.fromkeys", "the harness cannot be created (TypeError: "),
    ],
)
def test_an_agent_that_is_not_there_is_told_in_one_line(
    url: str, shop_folder: Path, name: str, told: str
) -> None:
    (shop_folder / "sick.py").write_text("agent = 1 / 0\n")
    ended = chat("--agent", name, "--store", url, lines="", cwd=shop_folder)
    assert ended.returncode == 1
    assert ended.stderr.startswith((f"error: --agent {told}", f"error: --agent: {told}"))
    assert ended.stderr.count("\n") == 1


def test_no_agent_speaks_in_the_session_of_another(url: str, shop_folder: Path) -> None:
    options = ("--agent", "shop:serve", "--store", url)
    assert chat("s", *options, lines="hello\n", cwd=shop_folder).returncode == 0
    ended = chat("s", "--store", url, lines="hello\n", cwd=shop_folder)
    assert ended.returncode == 1
    assert (
        "belongs to agent 'shop', not to 'holdfast-chat'; pass its agent with --agent"
        in ended.stderr
    )


def test_which_model_speaks() -> None:
    plain, own = Agent("a", "x"), Agent("a", "x", model="openai/gpt-5.1")
    key = {"OPENAI_API_KEY": "k"}
    assert choose(plain, "x/y", {}) == Choice("x/y", "x/y")
    assert choose(plain, None, {"HOLDFAST_MODEL": "x/y", **key}) == Choice("x/y", "x/y")
    assert choose(own, None, key) == Choice()
    assert choose(own, None, {}).offline == "OPENAI_API_KEY is not set"
    assert choose(own, None, {}).ref == "scripted/offline"
    assert choose(plain, None, key) == Choice(default="openai/gpt-5.1")
    assert choose(plain, None, {}).default == "scripted/offline"
    assert choose(Agent("a", "x", model="mine/own"), None, {}) == Choice()
    wrong: Any = offline()  # a model in place of its name: the harness says what to do
    assert choose(Agent("a", "x", model=wrong), None, {}) == Choice()


async def test_with_a_key_the_vendor_is_asked(url: str, tmp_path: Path) -> None:
    async with Standin() as vendor:
        vendor.stream(said({"content": "Good "}, {"content": "evening."}))
        environment = {
            **os.environ,
            "OPENAI_API_KEY": "k",
            "OPENAI_BASE_URL": f"{vendor.url}/v1",
            "HOLDFAST_MODEL": "openai-chat/lab-1",
        }
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "holdfast.cli", "chat", "s", "--store", url),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
        )
        out, err = await process.communicate(b"hello\n")
        assert (process.returncode, out) == (0, b"Good evening.\n"), err
        assert b"offline" not in err
        assert vendor.asked[0].body["model"] == "lab-1"


def test_it_takes_over_from_a_chat_that_was_killed(url: str, shop_folder: Path, cli: Cli) -> None:
    options = ("chat", "s", "--agent", "shop:serve", "--store", url)
    with start(*options, "--json", stdin=subprocess.PIPE, cwd=shop_folder) as first:
        assert first.stdin is not None
        assert first.stdout is not None
        first.stdin.write("slow\n")
        first.stdin.flush()
        while "delta" not in json.loads(first.stdout.readline()):
            pass
        first.kill()
        first.communicate()
    with Terminal(*options, cwd=shop_folder) as second:
        second.until_screen("begun")
        second.type("/abort")
        second.until_screen("[aborted")
        second.type("/quit")
        assert second.end() == 0
    events = cli("show", "s", "--all", "--json", "--store", url).json["events"]
    resumed = [event["data"]["reason"] for event in events if event["kind"] == "run.resumed"]
    assert resumed == ["driver_lost"]


# In a terminal


def test_a_conversation_in_a_terminal(url: str, shop_folder: Path) -> None:
    with Terminal("chat", "s", "--agent", "shop:serve", "--store", url, cwd=shop_folder) as screen:
        screen.until_screen("/abort /queue /model REF /mode NAME /quit")
        screen.until_screen(READY)
        screen.type("hello")
        screen.until_screen("Good day to you.")
        screen.until_screen(READY)
        screen.type("refund")
        screen.until_screen("refund(order='42')? y, n REASON, e to edit:")
        screen.type("e")
        screen.until_screen('arguments: {"order":"42"}')
        screen.until_screen("new arguments (JSON):")
        screen.type('{"order": "42", "cents": 5}')
        screen.until_screen("refunded 5 of 42")
        screen.until_screen(READY)
        screen.press("\x04")
        assert screen.end() == 0
        assert "continue with: holdfast chat --agent shop:serve" in screen.seen
    assert effects(shop_folder) == ["42 5"]


def test_what_is_typed_while_it_works_waits_and_is_driven_after_an_abort(
    url: str, shop_folder: Path
) -> None:
    with Terminal("chat", "s", "--agent", "shop:serve", "--store", url, cwd=shop_folder) as screen:
        screen.until_screen(READY)
        screen.type("slow")
        screen.until_screen("begun")
        screen.type("hello")
        screen.type("/queue")
        screen.until_screen("queue  hello")
        screen.type("/abort")
        screen.until_screen("[aborted")
        screen.until_screen("Good day to you.")
        screen.until_screen(READY)
        screen.type("/queue")
        screen.until_screen("the queue is empty")
        screen.type("/quit")
        assert screen.end() == 0


def test_ctrl_c_aborts_first_and_leaves_the_second_time(
    url: str, shop_folder: Path, cli: Cli
) -> None:
    with Terminal("chat", "s", "--agent", "shop:serve", "--store", url, cwd=shop_folder) as screen:
        screen.until_screen(READY)
        screen.type("slow")
        screen.until_screen("begun")
        screen.press("\x03")
        screen.until_screen("aborting the run; Ctrl-C again ends the chat")
        screen.until_screen("[aborted")
        screen.until_screen(READY)
        screen.press("\x03")
        assert screen.end() == 130
    events = cli("show", "s", "--all", "--json", "--store", url).json["events"]
    kept = [e["data"]["text"] for e in events if e["kind"] == "message.interrupted"]
    assert kept == ["begun "]


def test_ctrl_c_leaves_what_waits_for_an_answer_as_it_is(
    url: str, shop_folder: Path, cli: Cli
) -> None:
    with Terminal("chat", "s", "--agent", "shop:serve", "--store", url, cwd=shop_folder) as screen:
        screen.until_screen(READY)
        screen.type("refund")
        screen.until_screen("? y, n REASON")
        screen.press("\x03")
        screen.until_screen("the run needs your answer")
        screen.press("\x03")
        assert screen.end() == 130
    assert len(cli("pending", "--json", "--store", url).json["items"]) == 1


def test_an_approval_from_another_process_is_shown(url: str, shop_folder: Path, cli: Cli) -> None:
    with Terminal("chat", "s", "--agent", "shop:serve", "--store", url, cwd=shop_folder) as screen:
        screen.until_screen(READY)
        screen.type("refund")
        screen.until_screen("? y, n REASON")
        assert cli("approve", "s", "--actor", "ann", "--store", url).code == 0
        screen.until_screen("approved by ann")
        screen.until_screen("refunded 1999 of 42")
        screen.until_screen(READY)
        screen.type("/quit")
        assert screen.end() == 0
    assert effects(shop_folder) == ["42 1999"]


def test_leaving_hands_the_run_over(url: str, shop_folder: Path, cli: Cli) -> None:
    with Terminal("chat", "s", "--agent", "shop:serve", "--store", url, cwd=shop_folder) as screen:
        screen.until_screen(READY)
        screen.type("slow")
        screen.until_screen("begun")
        screen.type("/quit")
        assert screen.end() == 0
    row = cli("show", "s", "--json", "--store", url).json["row"]
    assert row["run"] == "waiting"
    assert row["wake"] is not None


def test_a_signal_in_a_pipe_aborts_too(url: str, shop_folder: Path) -> None:
    options = ("chat", "s", "--agent", "shop:serve", "--store", url, "--json")
    with start(*options, stdin=subprocess.PIPE, cwd=shop_folder) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("slow\n")
        process.stdin.flush()
        while "delta" not in json.loads(process.stdout.readline()):
            pass
        os.kill(process.pid, signal.SIGINT)
        out, _ = process.communicate()
    kinds = [json.loads(line)["event"]["kind"] for line in out.splitlines()]
    assert kinds[-1] == "run.finished"
    assert process.returncode == 0
