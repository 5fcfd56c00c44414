"""The loops of other agent SDKs with a model that answers at once, as they ship."""

from __future__ import annotations

import asyncio
import statistics
import time
from pathlib import Path
from typing import Any

from .measure import steady
from .peers import need

OPENAI = "OpenAI Runner and SQLiteSession"


def openai_turn(folder: Path, turns: int, asked: str, answer: str) -> float:
    """The median turn of a new session, in ms. Its tracing is off."""
    agents = need("agents", "openai-agents")
    model = _instant(answer)
    agents.set_tracing_disabled(True)
    agent = agents.Agent(name="shop", instructions="You answer questions.", model=model)

    async def main() -> float:
        session = agents.SQLiteSession("session", folder / "openai.db")
        times = []
        try:
            await agents.Runner.run(agent, asked, session=session)
            with steady():
                for _ in range(turns):
                    start = time.perf_counter()
                    await agents.Runner.run(agent, asked, session=session)
                    times.append(time.perf_counter() - start)
        finally:
            session.close()
        return statistics.median(times) * 1e3

    return asyncio.run(main())


def _instant(answer: str) -> Any:
    """A model of theirs that answers at once."""
    models = need("agents.models.interface", "openai-agents")
    items = need("agents.items", "openai-agents")
    usage = need("agents.usage", "openai-agents")
    types = need("openai.types.responses", "openai-agents")

    class Instant(models.Model):  # type: ignore[misc, name-defined]
        async def get_response(self, *given: Any, **more: Any) -> Any:
            text = types.ResponseOutputText(text=answer, type="output_text", annotations=[])
            message = types.ResponseOutputMessage(
                id="1", content=[text], role="assistant", status="completed", type="message"
            )
            return items.ModelResponse(output=[message], usage=usage.Usage(), response_id=None)

        def stream_response(self, *given: Any, **more: Any) -> Any:
            raise NotImplementedError

    return Instant()
