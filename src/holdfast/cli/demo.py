"""`holdfast demo`: a log that survives a kill, shown and checked.

One process writes a conversation and is killed in the middle of it. Another opens the
store, reads what is there, and goes on. Tells the story; needs no extra.
"""

from __future__ import annotations

import argparse
import json as json_module
import random
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from ..events import new_id
from .killed import DemoFailed, Line, Outcome, read_and_go_on, write_and_kill

try:
    from rich.console import Console
except ModuleNotFoundError:
    Console = None  # type: ignore[assignment, misc]  # the story is then told without colours

Tell = Callable[..., None]  # takes a line and, if it has one, its style


def demo(*, dir: Path | None = None, json: bool = False) -> int:
    """Show a log surviving a kill: a process writes, is killed, and another carries on.

    ```
    holdfast demo
    ```

    Every event that the killed process was told is safe must be there, whole, under its
    number; if one is not, the exit code is 1. With `--json`: one document.

    :param dir: Keep the store in this folder. Default: a temporary one.
    :param json: Write JSON to stdout.
    """
    tell = _quiet if json else _teller()
    outcome, session = Outcome(), f"demo-{new_id()[-12:]}"
    try:
        with _folder(dir) as folder:
            _play(_url(folder), session, outcome, tell)
    except DemoFailed as error:
        outcome.problems.append(str(error))
    if json:
        print(json_module.dumps(_summary(outcome)))
    else:
        _judge(outcome, tell, dir, session)
    return int(bool(outcome.problems))


def _play(url: str, session: str, outcome: Outcome, tell: Tell) -> None:
    after = random.randrange(15, 30)  # noqa: S311  no secret
    tell(f"A process writes a conversation to {url}", "bold")
    pid, outcome.acknowledged = write_and_kill(url, session, after)
    tell(f"  killed it (SIGKILL, process {pid}) while it was writing")
    tell(f"  it had been told that {len(outcome.acknowledged)} events are safe")
    pid = read_and_go_on(url, session, outcome)
    outcome.compare()
    tell(f"\nAnother process ({pid}) opens the store and reads:", "bold")
    for seq, event in outcome.read.items():
        known = "acknowledged" if seq in outcome.acknowledged else "written, reply cut off"
        said = event["data"].get("text", event["data"].get("title", ""))
        tell(f"  {seq:>4}  {event['kind']:<18} {said}  [{known}]")
    if outcome.appended:
        tell("\nIt carries on with the numbers that follow:", "bold")
        tell(f"  {', '.join(map(str, outcome.appended))}")


def _judge(outcome: Outcome, tell: Tell, dir: Path | None, session: str) -> None:
    tell("")
    if outcome.problems:
        for problem in outcome.problems:
            tell(f"FAILED: {problem}", "red")
        return
    tell(
        f"All {len(outcome.acknowledged)} acknowledged events are there and whole, "
        f"none is half there, and the numbers have no gap.",
        "green",
    )
    if dir is not None:
        tell(f"Look at it: holdfast show {session} --store {_url(dir)}")


def _summary(outcome: Outcome) -> Line:
    return {
        "ok": not outcome.problems,
        "acknowledged": len(outcome.acknowledged),
        "read": len(outcome.read),
        "appended": outcome.appended,
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
