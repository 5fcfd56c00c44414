"""`holdfast demo`: it must show what is so, and notice what is not."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.cli import demo as story
from holdfast.cli.demo import DemoResult
from holdfast.cli.demo_processes import DemoFailed, DemoStage

from .conftest import Cli
from .programs import without

ONCE = "it was made exactly once"


@pytest.mark.parity("harness-kernel", 95)
def test_the_demo_tells_the_whole_story(tmp_path: Path, cli: Cli) -> None:
    ended = cli("demo", "--dir", str(tmp_path))
    assert ended.code == 0, ended.out
    assert ended.out.count("(SIGKILL)") == 2
    assert "approved by ann" in ended.out
    assert ONCE in ended.out
    (effects,) = tmp_path.glob("*.effects")
    assert [line.split()[0] for line in effects.read_text().splitlines()] == ["look_up", "refund"]
    command = ended.out.splitlines()[-1].partition("holdfast ")[2].split()
    shown = cli(*command, "--all", "--json").json
    kinds = [event["kind"] for event in shown["events"]]
    assert kinds.count("run.resumed") == 2
    assert kinds.count("tool.started") == 2
    assert kinds[-1] == "run.finished"
    assert shown["row"]["run"] == "done"
    settled = [event for event in shown["events"] if event["kind"] == "pending.settled"]
    assert [event["actor"] for event in settled] == ["ann"]


def test_the_demo_runs_as_a_module_without_the_extra() -> None:
    program = "sys.argv[1:] = []\nfrom holdfast.cli.demo import main\nsys.exit(main())"
    ended = without({"cyclopts", "rich"}, program)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ONCE in ended.stdout


def test_the_demo_gives_one_document_in_json() -> None:
    command = [sys.executable, "-m", "holdfast.cli.demo", "--json"]
    ended = subprocess.run(command, capture_output=True, check=False)
    assert ended.returncode == 0
    found = json.loads(ended.stdout)
    assert found["ok"] is True
    assert found["refunds"] == 1
    assert found["status"] == "done"


def good() -> DemoResult:
    """What the demo sees when all is well."""
    return DemoResult(
        asked=["p"],
        before=["look_up 42 by process 1"],
        refunder=3,
        effects=["look_up 42 by process 1", "refund 42 1999 by process 3"],
        answer="Done: 19.99",
        status="done",
        again=True,
    )


def test_nothing_is_found_where_nothing_is_wrong() -> None:
    outcome = good()
    outcome.judge()
    assert outcome.problems == []


def test_every_fault_is_found() -> None:
    twice = good()
    twice.effects.append("refund 42 1999 by process 4")
    early = good()
    early.before.append("refund 42 1999 by process 1")
    never = good()
    never.effects.pop()
    other = good()
    other.effects[1] = "refund 42 1999 by process 13"
    again = good()
    again.effects.append("look_up 42 by process 3")
    for outcome, problem in (
        (twice, "the refund was made 2 times"),
        (early, "the refund was made before it was approved"),
        (never, "the refund was made 0 times"),
        (other, "the refund was made by a different process than the one that reported it"),
        (again, "the order was not looked up exactly once"),
    ):
        outcome.judge()
        assert outcome.problems == [problem]
    nothing = DemoResult()
    nothing.judge()
    assert "the agent asked for approval 0 times" in nothing.problems
    assert "the run ended as nothing" in nothing.problems
    assert "a second approval was accepted" in nothing.problems


def test_a_process_that_does_not_do_its_part_has_failed(tmp_path: Path) -> None:
    (tmp_path / "not.db").write_text("this is not a database, as anyone can see")
    process = DemoStage(f"sqlite:{tmp_path}/not.db", "s", tmp_path / "effects").ask()
    with pytest.raises(DemoFailed, match="not an SQLite database"), process.lines() as said:
        assert list(said) == []


def test_a_fault_ends_the_demo_with_exit_code_1(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refunds_twice(folder: Path, session: str, outcome: DemoResult, tell: object) -> None:
        vars(outcome).update(vars(good()), effects=["look_up 1", *["refund by 3"] * 2])

    monkeypatch.setattr(story, "_play", refunds_twice)
    assert story.main([]) == 1
    assert "FAILED: the refund was made 2 times" in capsys.readouterr().out
