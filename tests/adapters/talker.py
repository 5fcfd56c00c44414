"""One turn with the real Claude Code CLI, in a process of its own: `talker URL CWD PROMPT
[SESSION | --continue-from CWD]`. Prints the session's id and the answer as a line of JSON."""

from __future__ import annotations

import asyncio
import json
import sys

from claude_agent_sdk import (
    AssistantMessage,
    ClaudeAgentOptions,
    ResultMessage,
    TextBlock,
    project_key_for_directory,
    query,
)

from holdfast.adapters.claude import ClaudeSessionStore


async def main(
    url: str, cwd: str, prompt: str, session: str | None = None, other: str | None = None
) -> None:
    aliases = {project_key_for_directory(cwd): project_key_for_directory(other)} if other else {}
    async with ClaudeSessionStore(url, aliases=aliases) as store:
        options = ClaudeAgentOptions(
            session_store=store,
            session_store_flush="eager",
            cwd=cwd,
            resume=session if other is None else None,
            continue_conversation=other is not None,
            setting_sources=[],
            max_turns=1,
            model="claude-sonnet-4-5",
            stderr=lambda line: print(line, file=sys.stderr),
        )
        said: list[str] = []
        async for message in query(prompt=prompt, options=options):
            if isinstance(message, AssistantMessage):
                said += [block.text for block in message.content if isinstance(block, TextBlock)]
            elif isinstance(message, ResultMessage):
                print(json.dumps({"session": message.session_id, "said": said}), flush=True)


asyncio.run(main(*sys.argv[1:]))
