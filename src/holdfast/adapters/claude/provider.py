"""The Claude Agent SDK as a model: each model call is a turn of the SDK's agent with its own tools.

The SDK's session is kept in a `ClaudeSessionStore`, on any store. With each answer, the log keeps
the id of that session and of its last message, so that the next turn continues exactly there, in
any process and from any fork.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from ...errors import MissingExtra, ModelError, ModelRateLimited, ModelUnavailable
from ...models.port import (
    BoundChunk,
    Chunk,
    EndChunk,
    FromModel,
    FromUser,
    Model,
    ModelCall,
    PromptMessage,
    Text,
    TextChunk,
    ThoughtChunk,
)
from ...redact import Redactor, StreamRedactor, values_only
from ...stores.port import Store
from .masking import MaskedSessions
from .store import ClaudeSessionStore

if TYPE_CHECKING:
    from claude_agent_sdk import ClaudeAgentOptions, ResultMessage

NAMESPACE = "claude-agent-sdk"
COUNTS = {  # the SDK's counters, and the names of Holdfast for them
    "input_tokens": "input_tokens",
    "output_tokens": "output_tokens",
    "cache_creation_input_tokens": "cache_write_tokens",
    "cache_read_input_tokens": "cache_read_tokens",
}


class SdkPosition(Struct, frozen=True):
    """The position in the SDK's conversation after an answer: its session and its last message."""

    session: str
    at: str | None = None


class ClaudeProvider:
    """Provides models of the namespace `claude-agent-sdk`.

    Only the SDK's tools in `allowed_tools` are available, and they run without approval. `cwd` is
    the working directory of the SDK's process, `env` are environment variables in addition to those
    of this process. `envs` returns more variables for a session; their values are masked in all
    output. `options` are further options of the SDK.

    See [Claude Agent SDK](../claude.md).
    """

    namespace = NAMESPACE
    names: Sequence[str] | None = None

    def __init__(
        self,
        store: Store | str,
        *,
        tenant: str = "main",
        cwd: str | None = None,
        allowed_tools: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        envs: Callable[[str], Mapping[str, str]] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self.sessions = ClaudeSessionStore(store, tenant=tenant)
        self._envs = envs or (lambda session: {})
        self._options: dict[str, Any] = {
            "cwd": cwd,
            "allowed_tools": list(allowed_tools),
            "tools": list(allowed_tools),
            "env": dict(env or {}),
            **(options or {}),
        }

    def __repr__(self) -> str:
        return f"ClaudeProvider({self.sessions!r})"

    def model(self, name: str) -> Model:
        return ClaudeModel(name, self.sessions, self._options, self._envs)

    async def aclose(self) -> None:
        await self.sessions.close()


class ClaudeModel:
    """A Claude model that is called through the SDK."""

    def __init__(
        self,
        name: str,
        sessions: ClaudeSessionStore,
        options: Mapping[str, Any],
        envs: Callable[[str], Mapping[str, str]],
    ) -> None:
        self.ref = f"{NAMESPACE}/{name}"
        self._name, self._sessions = name, sessions
        self._options, self._envs = options, envs

    async def stream(self, call: ModelCall) -> AsyncGenerator[Chunk, None]:
        """Run one turn of the SDK's agent. Closing the generator ends the SDK's process."""
        sdk = _sdk()
        prompt, position = new_prompt(call.messages, self.ref)
        given = {} if call.session is None else self._envs(call.session)
        output = MaskedOutput(values_only(given.values()))
        options = self._sdk_options(call.system, position, given)
        again, last = False, None
        async with contextlib.aclosing(self._messages(prompt, options)) as messages:
            async for message in messages:
                if isinstance(message, sdk.ResultMessage):
                    for chunk in (*output.rest(), *self._end(message, last)):
                        yield chunk
                    return
                if getattr(message, "parent_tool_use_id", None) is not None:
                    continue  # the message of a sub-agent
                if isinstance(message, sdk.AssistantMessage):
                    last, again = message.uuid or last, True
                elif isinstance(message, sdk.StreamEvent):
                    for chunk in _chunks(message.event, again=again):
                        again = False
                        for shown in output.more(chunk):
                            yield shown
        raise ModelUnavailable(model=self.ref, problem="the answer was truncated")

    async def _messages(
        self, prompt: str, options: ClaudeAgentOptions
    ) -> AsyncGenerator[Any, None]:
        sdk = _sdk()
        try:
            turn = sdk.query(prompt=prompt, options=options)
            async with contextlib.aclosing(turn) as found:
                async for message in found:
                    yield message
        except sdk.CLINotFoundError as error:
            remedy = "install Claude Code, or pass ClaudeProvider(…, options={'cli_path': …})"
            problem = "the program `claude` was not found"
            raise ModelUnavailable(model=self.ref, problem=problem, remedy=remedy) from error
        except sdk.ClaudeSDKError as error:
            problem = f"the Claude Agent SDK failed ({type(error).__name__})"
            raise ModelUnavailable(model=self.ref, problem=problem) from error
        except (OSError, asyncio.IncompleteReadError) as error:
            raise ModelUnavailable(
                model=self.ref, problem="the Claude Code process failed"
            ) from error

    def _sdk_options(
        self, system: str, position: SdkPosition | None, given: Mapping[str, str]
    ) -> ClaudeAgentOptions:
        sessions: Any = self._sessions
        if given:
            sessions = MaskedSessions(sessions, values_only(given.values()))
        known: dict[str, Any] = {
            "model": self._name,
            "system_prompt": system or None,
            "session_store": sessions,
            "session_store_flush": "eager",
            "include_partial_messages": True,
            "permission_mode": "dontAsk",
            "setting_sources": [],
        }
        if position is not None:
            # Messages after that position belong to a turn that is not in this log.
            known |= {"resume": position.session, "resume_session_at": position.at}
        known |= {**self._options, "env": {**self._options["env"], **given}}
        options: ClaudeAgentOptions = _sdk().ClaudeAgentOptions(**known)
        return options

    def _end(self, result: ResultMessage, last: str | None) -> Iterator[Chunk]:
        if result.is_error:
            raise self._failed(result.api_error_status)
        yield BoundChunk({"claude": {"session": result.session_id, "at": last}})
        counted = {ours: (result.usage or {}).get(theirs) for theirs, ours in COUNTS.items()}
        usage = {name: count for name, count in counted.items() if isinstance(count, int)}
        yield EndChunk("length" if result.stop_reason == "max_tokens" else "stop", usage)

    def _failed(self, status: int | None) -> ModelError:
        if status == 429:
            return ModelRateLimited(model=self.ref, problem="too many calls", status=status)
        if status is None or status >= 500:
            return ModelUnavailable(model=self.ref, problem="the turn failed", status=status)
        return ModelError(model=self.ref, problem="the provider rejected the call", status=status)


def new_prompt(messages: Sequence[PromptMessage], ref: str) -> tuple[str, SdkPosition | None]:
    """Return, as one string, the messages that the SDK's session does not have yet, and the
    position at which its conversation continues. Before the SDK's first turn, the string also
    contains the answers of other models."""
    position, upto = None, 0
    for number, message in enumerate(messages, 1):
        if isinstance(message, FromModel) and (found := _position(message)) is not None:
            position, upto = found, number
    parts = [_as_text(message, ref) for message in messages[upto:]]
    return "\n\n".join(filter(None, parts)), position


def _position(message: FromModel) -> SdkPosition | None:
    for bound in message.bound:
        if isinstance(bound, dict) and isinstance(known := bound.get("claude"), dict):
            return SdkPosition(str(known.get("session")), known.get("at"))
    return None


def _as_text(message: PromptMessage, ref: str) -> str:
    if isinstance(message, FromUser):
        if not all(isinstance(part, Text) for part in message.content):
            raise ModelError(model=ref, problem="images and files are not supported")
        return "\n".join(part.text for part in message.content if isinstance(part, Text))
    if isinstance(message, FromModel):
        return f"[another assistant said: {message.text}]" if message.text else ""
    return ""


class MaskedOutput:
    """Masks secret values in the text and the thinking of a turn."""

    def __init__(self, redactor: Redactor) -> None:
        self._flows: dict[type[TextChunk | ThoughtChunk], StreamRedactor] = {
            TextChunk: StreamRedactor(redactor),
            ThoughtChunk: StreamRedactor(redactor),
        }

    def more(self, chunk: TextChunk | ThoughtChunk) -> Iterator[Chunk]:
        if text := self._flows[type(chunk)].feed(chunk.text):
            yield type(chunk)(text)

    def rest(self) -> Iterator[Chunk]:
        for kind, flow in self._flows.items():
            if text := flow.flush():
                yield kind(text)


def _chunks(event: Mapping[str, Any], *, again: bool) -> Iterator[TextChunk | ThoughtChunk]:
    """Yield the text in an event of the Messages API. `again` means that a further message of the
    turn begins; a blank line is inserted before it."""
    delta = event.get("delta") if event.get("type") == "content_block_delta" else None
    kind = delta.get("type") if isinstance(delta, dict) else None
    if isinstance(delta, dict) and kind == "text_delta":
        yield TextChunk(f"\n\n{delta['text']}" if again else delta["text"])
    elif isinstance(delta, dict) and kind == "thinking_delta":
        yield ThoughtChunk(delta["thinking"])


def _sdk() -> Any:
    try:
        import claude_agent_sdk  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise MissingExtra(extra="claude", needed_for="the Claude Agent SDK") from error
    return claude_agent_sdk
