"""`holdfast demo`: it must show what is so, and notice what is not."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.cli import demo as story
from holdfast.cli.killed import MORE, DemoFailed, Outcome, expected, write_and_kill

from .conftest import Cli
from .programs import without


def test_the_demo_shows_every_acknowledged_event(tmp_path: Path, cli: Cli) -> None:
    ended = cli("demo", "--dir", str(tmp_path))
    assert ended.code == 0, ended.out
    assert ended.out.count("[acknowledged]") >= 15
    assert "acknowledged events are there and whole" in ended.out
    command = ended.out.splitlines()[-1].partition("holdfast ")[2].split()
    shown = cli(*command, "--all", "--json").json
    assert [event["seq"] for event in shown["events"]] == list(range(1, shown["row"]["head"] + 1))


def test_the_demo_runs_as_a_module_without_the_extra() -> None:
    program = "sys.argv[1:] = []\nfrom holdfast.cli.demo import main\nsys.exit(main())"
    ended = without({"cyclopts", "rich"}, program)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "acknowledged events are there and whole" in ended.stdout


def test_the_demo_gives_one_document_in_json() -> None:
    command = [sys.executable, "-m", "holdfast.cli.demo", "--json"]
    ended = subprocess.run(command, capture_output=True, check=False)
    assert ended.returncode == 0
    found = json.loads(ended.stdout)
    assert found["ok"] is True
    assert found["read"] >= found["acknowledged"] >= 15


def whole(head: int = 5, acknowledged: int = 5) -> Outcome:
    """What the demo sees when all is well."""
    return Outcome(
        acknowledged={seq: f"id-{seq}" for seq in range(1, acknowledged + 1)},
        read={seq: {"seq": seq, "id": f"id-{seq}", **expected(seq)} for seq in range(1, head + 1)},
        appended=list(range(head + 1, head + 2 * MORE + 1)),
    )


def test_nothing_is_found_where_nothing_is_wrong() -> None:
    for outcome in (whole(), whole(head=7)):
        outcome.compare()
        assert outcome.problems == []


def test_every_loss_is_found() -> None:
    lost = whole(head=3)
    lost.compare()
    assert lost.problems == [
        "event 4 was acknowledged and is lost",
        "event 5 was acknowledged and is lost",
    ]
    half = whole(head=6, acknowledged=5)
    half.compare()
    assert half.problems == ["event 6 is there without the other half of its append"]
    changed = whole()
    changed.read[2]["data"] = {"text": "Where is"}
    changed.read[3]["id"] = "another"
    changed.compare()
    assert changed.problems == [
        "event 3 is another one than was acknowledged",
        "event 2 is not whole",
    ]
    gap = whole()
    gap.appended[0] = 99
    gap.compare()
    assert gap.problems == [f"the new numbers do not follow 5: {gap.appended}"]


def test_a_writer_that_cannot_write_is_said_to_have_failed(tmp_path: Path) -> None:
    (tmp_path / "not.db").write_text("this is not a database, as anyone can see")
    with pytest.raises(DemoFailed, match="no SQLite database"):
        write_and_kill(f"sqlite:{tmp_path}/not.db", "s", 5)


def test_a_loss_ends_the_demo_with_exit_code_1(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def loses(url: str, session: str, outcome: Outcome, tell: object) -> None:
        outcome.problems.append("event 4 was acknowledged and is lost")

    monkeypatch.setattr(story, "_play", loses)
    assert story.main([]) == 1
    assert "FAILED: event 4 was acknowledged and is lost" in capsys.readouterr().out
