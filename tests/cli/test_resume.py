"""`holdfast resume`: sessions that others left, taken up in processes that are real."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from holdfast import NewEvent, Store, key
from tests import forks

from .agents import effects, shop_folder
from .conftest import Cli, Ended, write
from .programs import start

__all__ = ["shop_folder"]
AGENT = ("--agent", "shop:serve")


@pytest.fixture(autouse=True)
def _here(shop_folder: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_STORE", url)


def send(url: str, **messages: str) -> None:
    """Let messages wait in sessions of the shop, that nobody serves yet."""

    async def work(store: Store) -> None:
        for session, text in messages.items():
            begun = NewEvent.of("session.created", {"agent": "shop"})
            message = NewEvent.of("message.received", {"text": text})
            await store.append(key(session), [begun, message], create=True)

    write(url, work)


def resume(*arguments: str, agent: tuple[str, ...] = AGENT) -> Ended:
    """Run it to its end."""
    words = ("-m", "holdfast.cli", "resume", *agent, *arguments)
    ended = forks.run(*words, capture_output=True, text=True, timeout=60)
    return Ended(ended.returncode, ended.stdout, ended.stderr)


def ends(ended: Ended) -> dict[str, str]:
    return {line["session"]: line["end"] for line in ended.lines if "end" in line}


def kinds(ended: Ended, session: str) -> list[str]:
    lines = [line for line in ended.lines if "event" in line and line["session"] == session]
    return [line["event"]["kind"] for line in lines]


def test_it_sees_everything_through_and_ends(url: str) -> None:
    send(url, a="hello", b="refund", c="again")
    ended = resume("--json")
    assert ended.code == 0, ended.err
    assert ends(ended) == {"a": "done", "b": "waiting", "c": "done"}
    assert kinds(ended, "a") == [
        "run.started",
        "model.called",
        "context.built",
        "message.completed",
        "run.finished",
    ]
    again = resume()
    assert (again.code, again.out) == (0, "")
    assert "nothing to do" in again.err


def test_only_the_sessions_that_are_named(url: str, cli: Cli) -> None:
    send(url, a="hello", b="hello")
    assert ends(resume("a", "--json")) == {"a": "done"}
    assert cli("show", "b", "--json").json["row"]["run"] is None
    assert resume("nobody").err.startswith("error: no thread 'main' of session 'nobody'")


def test_text_tells_how_it_goes(url: str) -> None:
    send(url, a="hello")
    ended = resume()
    assert "message.completed  Good day to you." in ended.out
    assert ended.out.splitlines()[-1] == "a  done"
    assert "1 session: 1 done" in ended.err


def test_why_a_run_failed_is_shown_once(url: str) -> None:
    send(url, a="fail")
    ended = resume()
    assert ended.code == 1
    assert ended.out.splitlines()[-1] == "a  failed: ModelError: scripted/shop: no more"
    assert (ended.out + ended.err).count("no more") == 1
    send(url, b="fail")
    (end,) = [line for line in resume("--json").lines if "end" in line]
    assert (end["end"], end["problem"]) == ("failed", "ModelError: scripted/shop: no more")


def test_what_was_approved_elsewhere_is_done_once(url: str, cli: Cli, shop_folder: Path) -> None:
    send(url, a="refund")
    assert ends(resume("--json")) == {"a": "waiting"}
    assert effects(shop_folder) == []
    assert cli("approve", "a", "--arguments", '{"order": "42", "cents": 7}').code == 0
    ended = resume("--json")
    assert ends(ended) == {"a": "done"}
    assert effects(shop_folder) == ["42 7"]
    assert resume("--json").out == ""
    assert effects(shop_folder) == ["42 7"]


@pytest.mark.parity("harness-kernel", 94)
def test_a_denial_reaches_the_model(url: str, cli: Cli, shop_folder: Path) -> None:
    send(url, a="refund")
    resume()
    assert cli("deny", "a", "--reason", "too late").code == 0
    ended = resume()
    assert "Reason: too late" in ended.out
    assert effects(shop_folder) == []


def test_a_failed_run_is_the_exit_code(url: str) -> None:
    send(url, a="fail", b="hello")
    ended = resume("--json")
    assert ended.code == 1
    assert ends(ended) == {"a": "failed", "b": "done"}


def begun(*arguments: str) -> subprocess.Popen[str]:
    """A process that serves, once the model has been asked for an answer that never ends."""
    process = start("resume", *AGENT, "--json", *arguments)
    assert process.stdout is not None
    while json.loads(process.stdout.readline())["event"]["kind"] != "model.called":
        pass
    return process


def test_it_takes_over_from_one_that_was_killed(url: str, cli: Cli) -> None:
    send(url, a="slow")
    with begun() as first:
        first.kill()
        first.communicate()
    assert cli("abort", "a").code == 0
    ended = resume("--json")
    assert ends(ended) == {"a": "aborted"}
    assert "run.resumed" in kinds(ended, "a")


def test_a_live_owner_is_not_displaced(url: str, cli: Cli) -> None:
    send(url, a="slow")
    with begun() as first:
        second = resume("--json")
        assert (second.code, ends(second)) == (0, {"a": "elsewhere"})
        assert "run.resumed" not in kinds(second, "a")
        assert first.poll() is None
        assert cli("abort", "a", "--reason", "enough").code == 0
        out, _ = first.communicate(timeout=60)
    assert first.returncode == 0
    assert json.loads(out.splitlines()[-1])["end"] == "aborted"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_signal_hands_over_at_a_safe_point(
    url: str, cli: Cli, number: signal.Signals, code: int
) -> None:
    send(url, a="slow")
    with begun("--forever", "--grace", "1s") as process:
        process.send_signal(number)
        process.communicate(timeout=60)
    assert process.returncode == code
    events: list[dict[str, Any]] = cli("show", "a", "--json").json["events"]
    assert events[-1]["kind"] == "run.waiting"
    assert events[-1]["data"]["reason"] == "handover"
    assert cli("abort", "a").code == 0
    assert ends(resume("--json")) == {"a": "aborted"}


def test_it_keeps_serving_what_comes(url: str, cli: Cli, shop_folder: Path) -> None:
    send(url, a="refund")
    with start("resume", *AGENT, "--forever", "--json") as process:
        assert process.stdout is not None

        lines = map(json.loads, process.stdout)

        def until(session: str, end: str) -> None:
            ended = {"session": session, "thread": "main", "end": end}
            assert any(line == ended for line in lines)

        until("a", "waiting")
        assert cli("approve", "a").code == 0
        until("a", "done")
        send(url, b="hello")
        until("b", "done")
        process.terminate()
        process.communicate(timeout=60)
    assert process.returncode == 0
    assert effects(shop_folder) == ["42 1999"]


def test_serving_takes_over_when_the_one_that_drove_dies(url: str, cli: Cli) -> None:
    send(url, a="slow")
    with begun("a") as first, start("resume", *AGENT, "--forever", "--json") as second:
        assert second.stdout is not None
        send(url, b="hello")
        lines = map(json.loads, second.stdout)
        assert any(line.get("end") == "done" for line in lines)
        first.kill()
        resumed = (line["event"] for line in lines if "event" in line)
        assert any(event["kind"] == "run.resumed" for event in resumed)
        assert cli("abort", "a").code == 0
        assert any(line.get("end") == "aborted" for line in lines)
        second.terminate()
        second.communicate(timeout=60)
        first.communicate(timeout=60)
    assert second.returncode == 0


def test_a_session_that_is_deleted_meanwhile_hurts_nobody(url: str, cli: Cli) -> None:
    send(url, a="slow", b="slow")
    with start("resume", *AGENT, "--forever", "--json") as process:
        assert process.stdout is not None
        lines = map(json.loads, process.stdout)
        called = (line for line in lines if line.get("event", {}).get("kind") == "model.called")
        assert {next(called)["session"], next(called)["session"]} == {"a", "b"}
        assert cli("delete", "a", "--yes").code == 0
        assert any(line.get("session") == "a" and line.get("end") == "gone" for line in lines)
        assert cli("abort", "b").code == 0
        assert any(line.get("session") == "b" and line.get("end") == "aborted" for line in lines)
        process.terminate()
        process.communicate(timeout=60)
    assert process.returncode == 0


def test_a_tool_that_is_gone_is_told_and_nothing_is_done(
    url: str, cli: Cli, shop_folder: Path
) -> None:
    send(url, a="refund")
    resume()
    assert cli("approve", "a").code == 0
    program = shop_folder / "shop.py"
    program.write_text(program.read_text().replace("tools=[refund],", ""))
    ended = resume("--json")
    assert ended.code == 1
    assert ends(ended) == {"a": "stuck"}
    assert "'refund', which agent 'shop' does not have" in ended.lines[-1]["problem"]
    assert "a  cannot be driven here: session 'a' needs tool" in resume().out
    assert effects(shop_folder) == []


def test_wrong_usage_is_told(url: str) -> None:
    send(url, a="hello")
    assert "needs --agent" in resume(agent=()).err
    assert resume("--thread", "x").code == 2
    assert "--grace must be a duration" in resume("--grace", "soon").err
    offline = resume(agent=("--agent", "shop:support"))
    assert offline.code == 2
    assert "choose a model with --model" in offline.err
    other = resume("a", agent=("--agent", "shop:night"))
    assert other.code == 1
    assert "belongs to agent 'shop', not to 'other'" in other.err
