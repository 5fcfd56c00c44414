"""One large session, exported and imported by processes of their own, which say how much memory
that took. Run as a program: `make URL MB`, `export URL FILE` or `import URL FILE`."""

from __future__ import annotations

import asyncio
import base64
import json
import random
import subprocess
import sys
from pathlib import Path

from holdfast import NewEvent, Scope, connect, export_bundle, import_bundle, key

ROOT = Path(__file__).parents[3]
OURS = Scope("main", "s")
ANSWER = 48 << 10  # bytes of chance in one result


def peak() -> float:
    """Megabytes, at most so far. Not `ru_maxrss`, which counts what the parent had."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


async def make(url: str, megabytes: int) -> int:
    """A run with many tool calls, whose results do not compress; the number of its events."""
    chance = random.Random(7)
    rounds = megabytes * (1 << 20) // (ANSWER * 4 // 3)
    async with connect(url) as store:
        begun = [
            NewEvent.of("session.created", {"agent": "reader"}),
            NewEvent.of("message.received", {"text": "Read all of it."}),
            NewEvent.of("run.started", {"inputs": [2]}, run="r"),
        ]
        await store.append(key("s"), begun, create=True)
        for n in range(rounds):
            call = {"id": f"c{n}", "name": "read", "arguments": {"page": n}}
            text = base64.b64encode(chance.randbytes(ANSWER)).decode()
            told = [
                NewEvent.of("message.completed", {"calls": [call]}, run="r"),
                NewEvent.of("tool.started", {"call": f"c{n}", "name": "read"}, run="r"),
                NewEvent.of("tool.finished", {"call": f"c{n}", "result": text}, run="r"),
            ]
            await store.append(key("s"), told)
        done = [
            NewEvent.of("message.completed", {"text": "I have."}, run="r"),
            NewEvent.of("run.finished", run="r"),
        ]
        return (await store.append(key("s"), done)).head


async def main(do: str, url: str, rest: str) -> None:
    if do == "make":
        print(json.dumps({"events": await make(url, int(rest))}))
        return
    async with connect(url) as store:
        if do == "export":
            written = await export_bundle((store, OURS), "local", to=rest)
            told = {"size": written.size, "id": written.bundle_id}
        else:
            done = await import_bundle(store, rest)
            told = {"events": done.events, "id": done.bundle_id}
    print(json.dumps({**told, "peak": peak()}))


def run(do: str, url: str, rest: str) -> dict[str, object]:
    """Do it in a process of its own."""
    command = [sys.executable, "-m", "tests.bundle.core.large", do, url, rest]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    told: dict[str, object] = json.loads(ended.stdout)
    return told


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
