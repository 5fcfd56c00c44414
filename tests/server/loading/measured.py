"""Loads an agent while no file may grow beyond 100 MiB; says by one line of JSON what was refused,
and how much memory it took this process and the largest of those that it started."""

from __future__ import annotations

import asyncio
import json
import resource
import sys

from holdfast import InvalidValue
from holdfast.server.loaders import GitLoader, LocalLoader, fetch

FILE = 100 << 20


async def main(kind: str, where: str) -> None:
    loader = GitLoader(where) if kind == "git" else LocalLoader(where)
    source = {"url": where} if kind == "git" else {"path": "agent"}
    problem = ""
    try:
        await fetch(loader, source)
    except InvalidValue as error:
        problem = error.problem
    children = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss >> 10
    print(json.dumps([problem, peak(), children]))


def peak() -> int:
    """The most MiB that this process had. `ru_maxrss` would count what its parent had as well."""
    with open("/proc/self/status") as status:
        (line,) = (line for line in status if line.startswith("VmHWM:"))
    return int(line.split()[1]) >> 10


resource.setrlimit(resource.RLIMIT_FSIZE, (FILE, FILE))
asyncio.run(main(*sys.argv[1:]))
