"""The Claude Agent SDK as a model: a turn of ours is a turn of its agent, with its own tools.

Its session is kept in `ClaudeSessionStore`, on any store, and what our log keeps beside each
answer says which session that is and how far it had come. So the next turn goes on exactly there,
in any process, from a fork as well.
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
COUNTS = {  # what the SDK counts, in our words
    "input_tokens": "input_tokens",
    "output_tokens": "output_tokens",
    "cache_creation_input_tokens": "cache_write_tokens",
    "cache_read_input_tokens": "cache_read_tokens",
}


class Place(Struct, frozen=True):
    """Where the SDK's conversation stood when it had answered: its session, its last message."""

    session: str
    at: str | None = None


class ClaudeProvider:
    """Models of the namespace `claude-agent-sdk`.

    Only `allowed_tools` of the SDK may be used, and without asking: nobody is asked within a
    turn. `cwd` is the folder it works in, `env` what its process finds in its environment beside
    what ours has. `envs` tells more variables of each session; what is said of their values is
    masked. `options` are further options of the SDK.
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
    """One model, asked through the SDK."""

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
        """One turn of the SDK's agent. Closing the generator ends its process."""
        sdk = _sdk()
        prompt, place = told(call.messages, self.ref)
        given = {} if call.session is None else self._envs(call.session)
        spoken = Spoken(values_only(given.values()))
        asked = self._asked(call.system, place, given)
        said, last = False, None
        async with contextlib.aclosing(self._messages(prompt, asked)) as messages:
            async for message in messages:
                if isinstance(message, sdk.ResultMessage):
                    for chunk in (*spoken.rest(), *self._end(message, last)):
                        yield chunk
                    return
                if getattr(message, "parent_tool_use_id", None) is not None:
                    continue  # a sub-agent of its own
                if isinstance(message, sdk.AssistantMessage):
                    last, said = message.uuid or last, True
                elif isinstance(message, sdk.StreamEvent):
                    for chunk in _chunks(message.event, again=said):
                        said = False
                        for shown in spoken.more(chunk):
                            yield shown
        raise ModelUnavailable(model=self.ref, problem="the answer was cut")

    async def _messages(self, prompt: str, asked: ClaudeAgentOptions) -> AsyncGenerator[Any, None]:
        sdk = _sdk()
        try:
            turn = sdk.query(prompt=prompt, options=asked)
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
            raise ModelUnavailable(model=self.ref, problem="its process failed") from error

    def _asked(
        self, system: str, place: Place | None, given: Mapping[str, str]
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
        if place is not None:
            # What came after that place belongs to a turn that this log does not have.
            known |= {"resume": place.session, "resume_session_at": place.at}
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
        return ModelError(model=self.ref, problem="the provider refused the call", status=status)


def told(messages: Sequence[PromptMessage], ref: str) -> tuple[str, Place | None]:
    """What is new for the SDK, as a text, and where its conversation stands. What others said
    before it was asked for the first time is told in that text."""
    place, upto = None, 0
    for number, message in enumerate(messages, 1):
        if isinstance(message, FromModel) and (found := _place(message)) is not None:
            place, upto = found, number
    parts = [_told(message, ref) for message in messages[upto:]]
    return "\n\n".join(filter(None, parts)), place


def _place(message: FromModel) -> Place | None:
    for bound in message.bound:
        if isinstance(bound, dict) and isinstance(known := bound.get("claude"), dict):
            return Place(str(known.get("session")), known.get("at"))
    return None


def _told(message: PromptMessage, ref: str) -> str:
    if isinstance(message, FromUser):
        if not all(isinstance(part, Text) for part in message.content):
            raise ModelError(model=ref, problem="it takes texts only, no images or files")
        return "\n".join(part.text for part in message.content if isinstance(part, Text))
    if isinstance(message, FromModel):
        return f"[another assistant said: {message.text}]" if message.text else ""
    return ""


class Spoken:
    """What a turn says and thinks, without the values that are not to be shown."""

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
    """What an event of the Messages API says; `again`: of a further message of the same turn."""
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
