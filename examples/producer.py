"""Posts a message without an agent or a model: `python producer.py URL TENANT SESSION TEXT`."""

import asyncio
import sys

from holdfast import Sessions, connect


async def main(url: str, tenant: str, session: str, text: str) -> None:
    async with connect(url) as store:
        sessions = Sessions(store, tenant=tenant)
        key = f"{session}:{text}"  # posting the same again has no effect
        seq = await sessions.post(session, text, agent="clerk", key=key)
        print(f"message {seq} of session {session!r} is stored")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
