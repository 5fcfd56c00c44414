"""One of several processes that append to a session: `writer URL NAME COUNT`, told to begin by a
line on stdin. Every second entry has a uuid that all the others have too."""

from __future__ import annotations

import asyncio
import sys

from holdfast.adapters.claude import ClaudeSessionStore

from .words import entry, key


async def main(url: str, name: str, count: str) -> None:
    async with ClaudeSessionStore(url) as sessions:
        print("ready", flush=True)
        sys.stdin.readline()
        for n in range(int(count)):
            own = entry(f"{name}-{n}", by=name, n=n, customTitle=f"{name} {n}")
            mark = entry(by=name, mark=n)
            await sessions.append(key(), [own, entry(f"all-{n}", n=n), mark])
            await sessions.append(key(sub="subagents/agent-1"), [own, entry(f"all-{n}", n=n)])


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
