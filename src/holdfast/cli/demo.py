"""`holdfast demo`: a refund that is approved, interrupted by two kills, and made once.

The first process works until it needs an approval, and is killed. The second approves. The third
makes the refund and is killed before it reports it. The fourth finishes the run. The demo prints
what happens and checks it; it needs no key, no server and no extra.
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
from .demo_processes import ASKED, DemoFailed, DemoStage, Line

try:
    from rich.console import Console
except ModuleNotFoundError:
    Console = None  # type: ignore[assignment, misc]  # then there are no colours

Tell = Callable[..., None]  # takes a line and optionally its style
PAID = "paid back 19.99"


@dataclass
class DemoResult:
    """The result of the demo, and the descriptions of the checks that failed."""

    asked: list[str] = field(default_factory=list)
    before: list[str] = field(default_factory=list)  # effects when the first process was killed
    refunder: int = 0
    effects: list[str] = field(default_factory=list)
    answer: str = ""
    status: str = ""
    again: bool = False  # whether a second approval was rejected
    problems: list[str] = field(default_factory=list)

    def judge(self) -> None:
        """Check the result and list the problems."""
        refunds = [line for line in self.effects if line.startswith("refund ")]
        for wrong, problem in (
            (len(self.asked) != 1, f"the agent asked for approval {len(self.asked)} times"),
            (_counted(self.before, "refund"), "the refund was made before it was approved"),
            (len(refunds) != 1, f"the refund was made {len(refunds)} times"),
            (
                bool(refunds) and not refunds[0].endswith(f" {self.refunder}"),
                "the refund was made by a different process than the one that reported it",
            ),
            (_counted(self.effects, "look_up") != 1, "the order was not looked up exactly once"),
            (self.status != "done", f"the run ended as {self.status or 'nothing'}"),
            ("19.99" not in self.answer, f"the answer to the customer was {self.answer!r}"),
            (not self.again, "a second approval was accepted"),
        ):
            if wrong:
                self.problems.append(problem)


def _counted(effects: list[str], tool: str) -> int:
    return sum(line.startswith(f"{tool} ") for line in effects)


def demo(*, dir: Path | None = None, json: bool = False) -> int:
    """Run a demo: workers are killed, and a refund is made exactly once.

    ```
    holdfast demo
    ```

    Needs no key and no server. The exit code is 1 if a check fails. With `--json`, prints one JSON
    object.

    :param dir: Folder for the store and the record of refunds. Default: a temporary folder.
    :param json: Write JSON to stdout.
    """
    tell = _quiet if json else _teller()
    result, session = DemoResult(), f"demo-{new_id()[-12:]}"
    try:
        with _folder(dir) as folder:
            _play(folder, session, result, tell)
        result.judge()
    except DemoFailed as error:
        result.problems.append(str(error))
    if json:
        print(json_module.dumps(_summary(result)))
    else:
        _judgement(result, tell, dir, session)
    return int(bool(result.problems))


def _play(folder: Path, session: str, result: DemoResult, tell: Tell) -> None:
    effects = folder / f"{session}.effects"
    effects.touch()
    stage = DemoStage(_url(folder), session, effects)
    _ask(stage, result, tell)
    result.before = effects.read_text().splitlines()
    _approve(stage, result, tell)
    _refund(stage, result, tell)
    _finish(stage, result, tell)
    result.effects = effects.read_text().splitlines()
    tell("\nWhat the tools did, from the file of effects:", "bold")
    for line in result.effects:
        tell(f"  {line}")


def _ask(stage: DemoStage, result: DemoResult, tell: Tell) -> None:
    process = stage.ask()
    tell(f"Process {process.pid} serves an agent on {stage.url}", "bold")
    tell(f"  customer: {ASKED}")
    with process.lines(dies=True) as said:
        for line in said:
            _print_event(line, tell)
            if "waiting" in line:
                result.asked = line["waiting"]
                process.kill()
    tell("  killed it (SIGKILL) while it waited for an approval", "red")


def _approve(stage: DemoStage, result: DemoResult, tell: Tell) -> None:
    if not result.asked:
        raise DemoFailed("the agent did not ask for approval")
    process = stage.approve(result.asked[0])
    command = f"holdfast approve {stage.session}"
    tell(f"\nProcess {process.pid} has no agent, only the store: {command}", "bold")
    with process.lines() as said:
        for line in said:
            tell(f"  {line['outcome']} by {line['by']}")


def _refund(stage: DemoStage, result: DemoResult, tell: Tell) -> None:
    process = stage.resume()
    result.refunder = process.pid
    tell(f"\nProcess {process.pid} resumes the session: holdfast resume {stage.session}", "bold")
    with process.lines(dies=True) as said:
        for line in said:
            _print_event(line, tell)
            if _kind(line) == "tool.finished" and _data(line).get("result") == PAID:
                process.kill()
    tell("  killed it too (SIGKILL): the refund is paid, but the customer was not told", "red")


def _finish(stage: DemoStage, result: DemoResult, tell: Tell) -> None:
    process = stage.resume()
    tell(f"\nProcess {process.pid} resumes it again: holdfast resume {stage.session}", "bold")
    with process.lines() as said:
        for line in said:
            _print_event(line, tell)
            if _kind(line) == "message.completed":
                result.answer = _data(line).get("text", "")
            elif _kind(line) == "run.finished":
                result.status = _data(line).get("status", "done")
    with stage.approve(result.asked[0]).lines(dies=True) as said:
        result.again = not list(said)
    tell(f"  holdfast approve {stage.session}: rejected, it was already decided")


def _kind(line: Line) -> str:
    return str(line.get("event", {}).get("kind", ""))


def _data(line: Line) -> Line:
    data: Line = line["event"]["data"]
    return data


def _print_event(line: Line, tell: Tell) -> None:
    """Print an event of the demo."""
    match _kind(line), line.get("event", {}).get("data"):
        case "message.completed", data:
            tell(f"  agent: {data['text']}")
            for call in data.get("calls", ()):
                tell(f"  → {call['name']}({json_module.dumps(call['arguments'])})", "yellow")
        case "message.interrupted", data:
            tell(f"  interrupted message: {data['text'].strip()} …")
        case "tool.finished", data:
            tell(f"  ← {json_module.dumps(data.get('result'))}", "yellow")
        case "pending.opened", data:
            tell(f"  ? {data['title']} needs approval", "magenta")
        case "run.resumed", data:
            tell(f"  resumed, because the {_reason(data)}")


def _reason(data: Line) -> str:
    lost = data.get("reason") == "driver_lost"
    return "previous worker was lost" if lost else "call was approved"


def _judgement(result: DemoResult, tell: Tell, dir: Path | None, session: str) -> None:
    tell("")
    for problem in result.problems:
        tell(f"FAILED: {problem}", "red")
    if result.problems:
        return
    tell("Two kills, one approval, one refund: it was made exactly once.", "green")
    if dir is not None:
        tell(f"Show the session: holdfast show {session} --store {_url(dir)}")


def _summary(result: DemoResult) -> Line:
    return {
        "ok": not result.problems,
        "refunds": _counted(result.effects, "refund"),
        "effects": result.effects,
        "answer": result.answer,
        "status": result.status,
        "problems": result.problems,
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
    """Run the demo without the extra, as `python -m holdfast.cli.demo`."""
    parser = argparse.ArgumentParser(prog="python -m holdfast.cli.demo")
    parser.add_argument("--dir", type=Path, help="folder for the store")
    parser.add_argument("--json", action="store_true", help="write JSON to stdout")
    options = parser.parse_args(argv)
    return demo(dir=options.dir, json=options.json)


if __name__ == "__main__":
    sys.exit(main())
