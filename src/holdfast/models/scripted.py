"""A model that returns scripted answers, for tests, demos, and use without an API key. The next
step is derived from the prompt, not from a counter, so that a process that takes over a
conversation continues where the previous process stopped. `check_prompt` is as strict as the
strictest vendor."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct

from ..errors import ModelError
from .port import (
    BoundChunk,
    CallChunk,
    Chunk,
    EndChunk,
    FromModel,
    FromTools,
    FromUser,
    ModelCall,
    StopReason,
    Text,
    TextChunk,
    ThoughtChunk,
    ToolSpec,
    split_ref,
)

WORDS = re.compile(r"\s*\S+\s*|\s+")


class Say(Struct, frozen=True):
    """A complete answer to one call. The text is streamed word by word, or in `chunks`, with
    `delay` seconds between them. By default, the stop reason is `calls` or `stop`.

    ```python
    model = ScriptedModel([Say("One moment.", calls=[Use("refund", order="42")]), "Done."])
    ```
    """

    text: str = ""
    calls: Sequence[CallChunk] = ()
    thought: str = ""
    bound: Sequence[Any] = ()
    usage: Mapping[str, int] = {}
    chunks: Sequence[str] | None = None
    delay: float = 0.0
    reason: StopReason | None = None


class Fail(Struct, frozen=True):
    """A call that streams the text `after` and then raises `error`.

    See [models](../models.md).
    """

    error: Exception
    after: str = ""


class Cut(Struct, frozen=True):
    """A call whose stream is interrupted after `text`: it ends without an `EndChunk`.

    See [models](../models.md).
    """

    text: str = ""


Plain: TypeAlias = str | Say | Fail | Cut
Step: TypeAlias = Plain | Callable[[ModelCall], Plain]


def Use(name: str, /, **arguments: Any) -> CallChunk:
    """Return a tool call for `Say(calls=[...])`.

    ```python
    Say("One moment.", calls=[Use("refund", order="42", cents=1999)])
    ```
    """
    return CallChunk(name=name, arguments=arguments)


class ScriptedModel:
    """Answers calls with `steps`: each is an answer, or a function that takes the call and returns
    an answer.

    The index of the step is the number of model messages in the prompt, or with `per_turn`, the
    number since the last user message. After the last step, a call raises `ModelError`; with
    `repeat`, the last step is repeated. `calls` keeps every call received, unless `keep_calls` is
    false.

    ```python
    model = ScriptedModel([Say(calls=[Use("refund", order="42")]), "It is refunded."])
    harness = Harness(agent, default_model=model)
    ```
    """

    def __init__(
        self,
        steps: Sequence[Step],
        *,
        ref: str = "scripted/demo",
        per_turn: bool = False,
        repeat: bool = False,
        strict: bool = True,
        keep_calls: bool = True,
    ) -> None:
        split_ref(ref, "ref")
        self.ref = ref
        self.calls: list[ModelCall] = []
        self._scripts: dict[str, Sequence[Step]] = {"": steps}
        self._per_turn, self._repeat, self._strict = per_turn, repeat, strict
        self._keep_calls = keep_calls

    @classmethod
    def by_input(
        cls,
        scripts: Mapping[str, Step | Sequence[Step]],
        *,
        ref: str = "scripted/demo",
        repeat: bool = False,
        strict: bool = True,
    ) -> ScriptedModel:
        """Create a model with a script for each input. The last user message selects the script: by
        its whole text, or by the first regular expression that matches it."""
        model = cls([], ref=ref, per_turn=True, repeat=repeat, strict=strict)
        model._scripts = {text: _steps(script) for text, script in scripts.items()}
        return model

    def __repr__(self) -> str:
        return f"ScriptedModel({self.ref})"

    async def stream(self, call: ModelCall) -> AsyncGenerator[Chunk, None]:
        if self._keep_calls:
            self.calls.append(call)
        if self._strict:
            check_prompt(call, self.ref)
        step = self._step(call)
        if isinstance(step, Fail):
            for word in split_words(step.after):
                yield TextChunk(word)
            raise step.error
        say = Say(step.text) if isinstance(step, Cut) else step
        for number, chunk in enumerate(_chunks(say)):
            if say.delay and number:
                await asyncio.sleep(say.delay)
            yield chunk
        if not isinstance(step, Cut):
            yield EndChunk(say.reason or ("calls" if say.calls else "stop"), dict(say.usage))

    def _step(self, call: ModelCall) -> Say | Fail | Cut:
        steps = self._script(call)
        number = _said(call, self._per_turn)
        if number >= len(steps):
            if not (self._repeat and steps):
                raise ModelError(
                    model=self.ref,
                    problem=f"the script has no more steps (its length is {len(steps)})",
                )
            number = len(steps) - 1
        step = steps[number]
        plain = step(call) if callable(step) else step
        return Say(plain) if isinstance(plain, str) else plain

    def _script(self, call: ModelCall) -> Sequence[Step]:
        text = last_input(call)
        if text in self._scripts:
            return self._scripts[text]
        for pattern, steps in self._scripts.items():
            if _found(pattern, text):
                return steps
        raise ModelError(model=self.ref, problem=f"no script for the input {text[:80]!r}")


def _found(pattern: str, text: str) -> bool:
    try:
        return re.search(pattern, text) is not None
    except re.error:  # a pattern that is not a valid expression is searched as text
        return pattern in text


def _steps(script: Step | Sequence[Step]) -> Sequence[Step]:
    if isinstance(script, (str, Say, Fail, Cut)) or callable(script):
        return [script]
    return script


def split_words(text: str) -> list[str]:
    """Split text into words with their whitespace. Joined, they are the original text."""
    return WORDS.findall(text)


def _chunks(say: Say) -> Iterator[Chunk]:
    yield from map(ThoughtChunk, split_words(say.thought))
    yield from map(TextChunk, split_words(say.text) if say.chunks is None else say.chunks)
    yield from say.calls
    yield from map(BoundChunk, say.bound)


def _said(call: ModelCall, per_turn: bool) -> int:
    count = 0
    for message in call.messages:
        if isinstance(message, FromModel):
            count += 1
        elif per_turn and isinstance(message, FromUser):
            count = 0
    return count


def last_input(call: ModelCall) -> str:
    """Return the text of the last user message."""
    users = [message for message in call.messages if isinstance(message, FromUser)]
    return text_of(users[-1]) if users else ""


def text_of(message: FromUser) -> str:
    """Return the texts of a user message, joined by line breaks."""
    return "\n".join(part.text for part in message.content if isinstance(part, Text))


# The prompt rules of strict vendors


def check_prompt(call: ModelCall, model: str = "scripted/strict") -> None:
    """Reject a prompt that a strict vendor would reject, with a `ModelError` of status 400.

    A prompt begins with a user message, and ends with a user message or with tool results. Every
    message with calls is followed directly by one result for each of its calls, and there are no
    other results. No call id occurs twice, no two model messages follow each other, and no message
    is empty.

    See [models](../models.md).
    """
    problem = next(_prompt_faults(call), None)
    if problem is not None:
        raise ModelError(model=model, problem=f"invalid prompt: {problem}", status=400)


def _prompt_faults(call: ModelCall) -> Iterator[str]:
    if not call.messages:
        yield "there are no messages"
        return
    if not isinstance(call.messages[0], FromUser):
        yield "it does not begin with a user message"
    seen = set[str]()
    before: FromUser | FromModel | FromTools | None = None
    for number, message in enumerate(call.messages):
        place = f"messages[{number}]"
        open_ids = [c.id for c in before.calls] if isinstance(before, FromModel) else []
        if isinstance(message, FromTools):
            yield from (f"{place} {fault}" for fault in _result_faults(message, open_ids))
        elif open_ids:
            yield f"{place} comes before the results of {', '.join(open_ids)}"
        elif isinstance(message, FromModel):
            if isinstance(before, FromModel):
                yield f"{place} is a second model message in a row"
            if not (message.text or message.calls):
                yield f"{place} is empty"
        elif not any(not isinstance(p, Text) or p.text.strip() for p in message.content):
            yield f"{place} is an empty user message"
        for made in message.calls if isinstance(message, FromModel) else ():
            if made.id in seen:
                yield f"{place} uses call id {made.id!r} again"
            seen.add(made.id)
        before = message
    if isinstance(before, FromModel):
        yield "it ends with a model message"


def _result_faults(message: FromTools, asked: list[str]) -> Iterator[str]:
    answered = [result.id for result in message.results]
    if not asked:
        yield "answers no call"
    elif sorted(answered) != sorted(asked):
        yield f"answers {answered}, but the calls were {asked}"


# Without an API key


def offline() -> ScriptedModel:
    """Return a model that needs no API key. It replies that it is offline and repeats the input; if
    the first word is the name of a tool, it calls that tool: `refund order=42`, or `refund order
    42`.

    ```python
    harness = Harness(agent, providers=[offline()], default_model="scripted/offline")
    ```
    """
    return ScriptedModel([_offline], ref="scripted/offline", repeat=True, keep_calls=False)


def _offline(call: ModelCall) -> Say:
    last = call.messages[-1]
    if isinstance(last, FromTools):
        return Say("\n".join(f"{r.name}: {r.content}" for r in last.results))
    text = last_input(call)
    tools = {tool.name: tool for tool in (*call.tools, *([call.output] if call.output else ()))}
    words = text.split()
    if call.output is not None:
        return Say(calls=[CallChunk(call.output.name, _arguments(call.output, words))])
    if words and words[0] in tools:
        return Say(calls=[CallChunk(words[0], _arguments(tools[words[0]], words[1:]))])
    known = f" Begin with the name of a tool to call it: {', '.join(tools)}." if tools else ""
    return Say(f"I am offline, since no model is set.{known} You said: {text}")


def _arguments(tool: ToolSpec, words: list[str]) -> dict[str, Any]:
    """Parse words such as `a=1` into arguments. `a 1` is accepted too if the tool has a parameter
    `a`."""
    known: dict[str, Any] = tool.schema.get("properties", {})
    found: dict[str, Any] = {}
    left = iter(words)
    for word in left:
        name, equals, value = word.partition("=")
        if equals and name:
            found[name] = _value(value, known.get(name))
        elif word in known and (following := next(left, None)) is not None:
            found[word] = _value(following, known[word])
    return found


def _value(word: str, schema: Any) -> Any:
    if isinstance(schema, dict) and schema.get("type") == "string":
        return word
    try:
        value = msgspec.json.decode(word)
    except msgspec.DecodeError:
        return word
    return word if isinstance(value, (dict, list)) else value
