"""Find the session of a message or begin one, give it a second surface, note a preference."""

import asyncio

import holdfast
from holdfast import Inbound, Row, Sessions


async def main(url: str = "memory:") -> Row:
    async with holdfast.connect(url) as store:
        sessions = Sessions(store, ttl=30 * 60)

        message = Inbound(
            user="user-123", workspace="workspace-456", surface="web", address="thread-1"
        )
        session = await sessions.resolve_session(message)

        await sessions.attach_surface(session.session, "slack", "dm-99")
        return await sessions.update_metadata(session.session, {"locale": "en-US"})


if __name__ == "__main__":
    print(asyncio.run(main()))
