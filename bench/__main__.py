"""The command: which workloads, how many rounds, where the results go."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec.structs import replace

from .adapters import adapter_adk, adapter_langgraph, adapter_openai
from .browsing import console
from .budgets import harness_budgets
from .fairness import fairness
from .finding import find
from .finding_shared import find_mongodb, find_postgres
from .harness import harness_late, harness_recovery, harness_turn
from .importing import importing
from .late import late_turn
from .late_shared import late_mongodb, late_postgres
from .loading import load
from .measure import FAILED, Bar, Result
from .mongodb import mongodb_lengths, mongodb_one, mongodb_together
from .opening import open_long
from .portal import portal
from .postgres import postgres_one, postgres_together
from .processes import postgres_processes
from .redaction import redaction
from .report import Progress, as_json, keep, machine, show
from .schedules import schedules
from .searching import search, search_postgres
from .sessions import session_deltas, session_fork, session_threads
from .settings import QUICK, Settings, Sizes, file_system
from .streams import harness_bytes, harness_streams
from .tails import tail, tail_mongodb, tail_postgres
from .turns import file_one, sqlite_one, sqlite_together, sqlite_vault
from .viewers import server_send, server_stalled, server_viewers

WORKLOADS: dict[str, Callable[[Settings], Result]] = {
    "sqlite-one": sqlite_one,
    "sqlite-32": sqlite_together,
    "sqlite-vault": sqlite_vault,
    "file-one": file_one,
    "postgres-one": postgres_one,
    "postgres-32": postgres_together,
    "postgres-processes": postgres_processes,
    "mongodb-one": mongodb_one,
    "mongodb-32": mongodb_together,
    "mongodb-lengths": mongodb_lengths,
    "late-turn": late_turn,
    "late-postgres": late_postgres,
    "late-mongodb": late_mongodb,
    "open": open_long,
    "load": load,
    "tail": tail,
    "tail-postgres": tail_postgres,
    "tail-mongodb": tail_mongodb,
    "find": find,
    "find-postgres": find_postgres,
    "find-mongodb": find_mongodb,
    "search": search,
    "search-postgres": search_postgres,
    "import": importing,
    "redact": redaction,
    "portal": portal,
    "adapter-openai": adapter_openai,
    "adapter-langgraph": adapter_langgraph,
    "adapter-adk": adapter_adk,
    "harness-turn": harness_turn,
    "harness-late": harness_late,
    "harness-recovery": harness_recovery,
    "schedules": schedules,
    "fairness": fairness,
    "harness-budgets": harness_budgets,
    "harness-streams": harness_streams,
    "harness-bytes": harness_bytes,
    "session-deltas": session_deltas,
    "session-threads": session_threads,
    "session-fork": session_fork,
    "server-viewers": server_viewers,
    "server-stalled": server_stalled,
    "server-send": server_send,
    "console": console,
}


def arguments(given: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench", description="How fast Holdfast is.")
    parser.add_argument("--only", metavar="NAME,…", help=f"of {', '.join(WORKLOADS)}")
    parser.add_argument("--rounds", type=int, metavar="N", help="interleaved rounds (9)")
    parser.add_argument("--quick", action="store_true", help="small counts, 3 rounds: a smoke test")
    parser.add_argument("--no-peers", action="store_true", help="floors only")
    parser.add_argument(
        "--before", type=Path, metavar="FOLDER", help="a checkout of an earlier commit to race"
    )
    parser.add_argument("--late", type=int, metavar="TURNS", help="length of the late sessions")
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep every value there")
    parser.add_argument("--keep", action="store_true", help="put the tables into bench/README.md")
    parser.add_argument("--list", action="store_true", help="name the workloads and stop")
    chosen = parser.parse_args(given)
    names = chosen.only.split(",") if chosen.only else list(WORKLOADS)
    if unknown := [name for name in names if name not in WORKLOADS]:
        parser.error(f"no workload {', '.join(unknown)}; there are {', '.join(WORKLOADS)}")
    if chosen.rounds is not None and chosen.rounds < 1:
        parser.error("--rounds needs at least 1")
    if chosen.late is not None and chosen.late < Sizes().early:
        parser.error(f"--late needs at least {Sizes().early}")
    if chosen.before and not (chosen.before / "src/holdfast").is_dir():
        parser.error("--before needs a checkout with src/holdfast in it")
    if chosen.keep and (chosen.quick or chosen.no_peers):
        parser.error("--keep is for runs with all counts and all peers")
    chosen.names = names
    return chosen


def run(names: Sequence[str], settings: Settings, progress: Progress) -> list[Result]:
    """The workloads one after the other; one that fails does not stop the rest."""
    results = []
    settings.step = progress.step
    for at, name in enumerate(names, 1):
        workload = WORKLOADS[name]
        progress.begin(name, (workload.__doc__ or "").strip().splitlines()[0], at, len(names))
        try:
            result = workload(settings)
        except Exception as error:
            absent = f"{FAILED}: {type(error).__name__}: {error}"
            bar = Bar(name=name, way="most", bar=0.0, absent=absent)
            result = Result(name=name, title=name, bars=[bar])
        progress.end(result)
        results.append(result)
    return results


def main(given: Sequence[str] | None = None) -> int:
    """0 when nothing failed, and every bar that was measured is met."""
    chosen = arguments(given)
    if chosen.list:
        print("\n".join(WORKLOADS))
        return 0
    sizes = QUICK if chosen.quick else Sizes()
    if chosen.late:
        sizes = replace(sizes, late=chosen.late, late_mongodb=chosen.late)
    settings = Settings(
        sizes=sizes,
        rounds=chosen.rounds or sizes.rounds,
        peers=not chosen.no_peers,
        before=chosen.before and chosen.before.resolve(),
    )
    about = machine(settings)
    if about.disk in ("tmpfs", "ramfs"):
        place = tempfile.gettempdir()
        print(
            f"warning: {place} is {file_system(place)}, where fsync costs nothing: "
            "set TMPDIR to a folder on a disk",
            file=sys.stderr,
        )
    with Progress() as progress, settings.servers:
        results = run(chosen.names, settings, progress)
    show(about, results)
    if chosen.quick:
        print("\nSmall counts: a smoke test, no judgement of the bars.")
    elif settings.rounds < Sizes().rounds:
        print(f"\n{settings.rounds} rounds are few: the bars are judged by {Sizes().rounds}.")
    if chosen.keep:
        page = Path(__file__).with_name("README.md")
        keep(page, about, settings.rounds, results, [*WORKLOADS])
    if chosen.json:
        chosen.json.write_bytes(as_json(about, settings, results))
    return 0 if all(holds(bar) for result in results for bar in result.bars) else 1


def holds(bar: Bar) -> bool:
    """Whether a bar is met, or cannot be measured for want of a peer."""
    return bar.met is not False and not bar.absent.startswith(FAILED)


if __name__ == "__main__":
    sys.exit(main())
