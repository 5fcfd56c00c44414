"""`holdfast demo`: a refund that is asked for, approved, cut short by kills, and made once.

One process works until it needs a person, and is killed. A second one approves, a third makes
the refund and is killed before it has said so, a fourth finishes. Tells the story and checks
it; needs no key, no server and no extra.
"""

from __future__ import annotations

import argparse
import json as json_module
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

from ..log.events import new_id
from .demo_processes import ASKED, DemoFailed, Line, approving, asking, resuming

try:
    from rich.console import Console
except ModuleNotFoundError:
    Console = None  # type: ignore[assignment, misc]  # the story is then told without colours

Tell = Callable[..., None]  # takes a line and, if it has one, its style
PAID = "paid back 19.99"


@dataclass
class Outcome:
    """What came of it, and every way in which it is not as it should be."""

    asked: list[str] = field(default_factory=list)
    approver: int = 0
    before: list[str] = field(default_factory=list)  # effects when the first process was dead
    refunder: int = 0
    effects: list[str] = field(default_factory=list)
    answer: str = ""
    status: str = ""
    again: bool = False  # whether a second approval was refused
    problems: list[str] = field(default_factory=list)

    def judge(self) -> None:
        """Find what does not hold."""
        refunds = [line for line in self.effects if line.startswith("refund ")]
        for wrong, problem in (
            (len(self.asked) != 1, f"the agent asked {len(self.asked)} times"),
            (_counted(self.before, "refund"), "the refund was made before it was approved"),
            (len(refunds) != 1, f"the refund was made {len(refunds)} times"),
            (
                bool(refunds) and not refunds[0].endswith(f" {self.refunder}"),
                "the refund was made by another process than the one that said so",
            ),
            (_counted(self.effects, "look_up") != 1, "the order was not looked up once"),
            (self.status != "done", f"the run ended as {self.status or 'nothing'}"),
            ("19.99" not in self.answer, f"the customer was told {self.answer!r}"),
            (not self.again, "a second approval was taken"),
        ):
            if wrong:
                self.problems.append(problem)


def _counted(effects: list[str], tool: str) -> int:
    return sum(line.startswith(f"{tool} ") for line in effects)


def demo(*, dir: Path | None = None, json: bool = False) -> int:
    """Show a refund that is asked for, approved by another process, cut short by two kills,
    and made once.

    ```
    holdfast demo
    ```

    Needs no key and no server. If any of it does not hold, the exit code is 1. With `--json`:
    one document.

    :param dir: Keep the store and the file of effects in this folder. Default: a temporary one.
    :param json: Write JSON to stdout.
    """
    tell = _quiet if json else _teller()
    outcome, session = Outcome(), f"demo-{new_id()[-12:]}"
    try:
        with _folder(dir) as folder:
            _play(folder, session, outcome, tell)
        outcome.judge()
    except DemoFailed as error:
        outcome.problems.append(str(error))
    if json:
        print(json_module.dumps(_summary(outcome)))
    else:
        _judgement(outcome, tell, dir, session)
    return int(bool(outcome.problems))


def _play(folder: Path, session: str, outcome: Outcome, tell: Tell) -> None:
    url, effects = _url(folder), folder / f"{session}.effects"
    effects.touch()
    _first(url, session, effects, outcome, tell)
    outcome.before = effects.read_text().splitlines()
    _second(url, session, effects, outcome, tell)
    _third(url, session, effects, outcome, tell)
    _fourth(url, session, effects, outcome, tell)
    outcome.effects = effects.read_text().splitlines()
    tell("\nWhat the tools did, from the file of effects:", "bold")
    for line in outcome.effects:
        tell(f"  {line}")


def _first(url: str, session: str, effects: Path, outcome: Outcome, tell: Tell) -> None:
    process = asking(url, session, effects)
    tell(f"Process {process.pid} serves an agent on {url}", "bold")
    tell(f"  customer: {ASKED}")
    with process.lines(dies=True) as said:
        for line in said:
            _retell(line, tell)
            if "waiting" in line:
                outcome.asked = line["waiting"]
                process.kill()
    tell("  killed it (SIGKILL) while it waited for an answer", "red")


def _second(url: str, session: str, effects: Path, outcome: Outcome, tell: Tell) -> None:
    if not outcome.asked:
        raise DemoFailed("the agent did not ask")
    process = approving(url, session, effects, outcome.asked[0])
    outcome.approver = process.pid
    tell(
        f"\nProcess {process.pid} has no agent, only the store: holdfast approve {session}", "bold"
    )
    with process.lines() as said:
        for line in said:
            tell(f"  {line['outcome']} by {line['by']}")


def _third(url: str, session: str, effects: Path, outcome: Outcome, tell: Tell) -> None:
    process = resuming(url, session, effects)
    outcome.refunder = process.pid
    tell(f"\nProcess {process.pid} takes the session up: holdfast resume {session}", "bold")
    with process.lines(dies=True) as said:
        for line in said:
            _retell(line, tell)
            if _kind(line) == "tool.finished" and _data(line).get("result") == PAID:
                process.kill()
    tell("  killed it too (SIGKILL): the money is paid, the customer knows nothing", "red")


def _fourth(url: str, session: str, effects: Path, outcome: Outcome, tell: Tell) -> None:
    process = resuming(url, session, effects)
    tell(f"\nProcess {process.pid} takes it up again: holdfast resume {session}", "bold")
    with process.lines() as said:
        for line in said:
            _retell(line, tell)
            if _kind(line) == "message.completed":
                outcome.answer = _data(line).get("text", "")
            elif _kind(line) == "run.finished":
                outcome.status = _data(line).get("status", "done")
    again = approving(url, session, effects, outcome.asked[0])
    with again.lines(dies=True) as said:
        outcome.again = not list(said)
    tell(f"  holdfast approve {session}: refused, it was decided before")


def _kind(line: Line) -> str:
    return str(line.get("event", {}).get("kind", ""))


def _data(line: Line) -> Line:
    data: Line = line["event"]["data"]
    return data


def _retell(line: Line, tell: Tell) -> None:
    """What an event says to somebody who watches."""
    match _kind(line), line.get("event", {}).get("data"):
        case "message.completed", data:
            tell(f"  agent: {data['text']}")
            for call in data.get("calls", ()):
                tell(f"  → {call['name']}({json_module.dumps(call['arguments'])})", "yellow")
        case "message.interrupted", data:
            tell(f"  it had said: {data['text'].strip()} …")
        case "tool.finished", data:
            tell(f"  ← {json_module.dumps(data.get('result'))}", "yellow")
        case "pending.opened", data:
            tell(f"  ? {data['title']} waits for an answer", "magenta")
        case "run.resumed", data:
            tell(f"  went on, since the {_reason(data)}")


def _reason(data: Line) -> str:
    lost = data.get("reason") == "driver_lost"
    return "process before it is gone" if lost else "question is answered"


def _judgement(outcome: Outcome, tell: Tell, dir: Path | None, session: str) -> None:
    tell("")
    for problem in outcome.problems:
        tell(f"FAILED: {problem}", "red")
    if outcome.problems:
        return
    tell("Two kills, one approval, one refund: it was made exactly once.", "green")
    if dir is not None:
        tell(f"Look at it: holdfast show {session} --store {_url(dir)}")


def _summary(outcome: Outcome) -> Line:
    return {
        "ok": not outcome.problems,
        "refunds": _counted(outcome.effects, "refund"),
        "effects": outcome.effects,
        "answer": outcome.answer,
        "status": outcome.status,
        "problems": outcome.problems,
    }


@contextmanager
def _folder(dir: Path | None) -> Iterator[Path]:
    if dir is not None:
        dir.mkdir(parents=True, exist_ok=True)
        yield dir
    else:
        with tempfile.TemporaryDirectory(prefix="holdfast-demo-") as name:
            yield Path(name)


def _url(folder: Path) -> str:
    return "sqlite:" + quote(str(folder / "demo.db"), safe="/:\\")


def _quiet(text: str, style: str = "") -> None:
    pass


def _teller() -> Tell:
    if Console is None:
        return lambda text, style="": print(text)
    console = Console(markup=False, emoji=False, highlight=False, soft_wrap=True)
    return lambda text, style="": console.print(text, style=style or None)


def main(argv: Sequence[str] | None = None) -> int:
    """`python -m holdfast.cli.demo`: the same without the extra."""
    parser = argparse.ArgumentParser(prog="python -m holdfast.cli.demo")
    parser.add_argument("--dir", type=Path, help="keep the store in this folder")
    parser.add_argument("--json", action="store_true", help="write JSON to stdout")
    options = parser.parse_args(argv)
    return demo(dir=options.dir, json=options.json)


if __name__ == "__main__":
    sys.exit(main())
