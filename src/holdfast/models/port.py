"""The model interface: one call of one model, as a stream of chunks.

A model gets everything in a `ModelCall` and keeps no state. It runs no tools and has no loop; it
only returns the model's output. All types here are plain values, so that a call can be recorded,
compared and replayed.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Any, Literal, Protocol, TypeAlias

from msgspec import Struct, field

from ..errors import InvalidValue
from ..values.media import Media


class Text(Struct, frozen=True, tag="text"):
    """A text in a message of a user."""

    text: str


class Asked(Struct, frozen=True):
    """A tool call in a message of a model. `id` is the provider's id, if there is one."""

    id: str
    name: str
    arguments: Any = None


class Answered(Struct, frozen=True):
    """The result of a tool call, as text for the model."""

    id: str
    name: str
    content: str
    failed: bool = False


class FromUser(Struct, frozen=True, tag="user"):
    """A message of a user in a prompt."""

    content: tuple[Text | Media, ...]


class FromModel(Struct, frozen=True, tag="model"):
    """An earlier message of a model in a prompt. `bound` is data that only the same model can read
    (signatures, encrypted reasoning), unchanged; for another model it is empty."""

    text: str = ""
    calls: tuple[Asked, ...] = ()
    bound: tuple[Any, ...] = ()


class FromTools(Struct, frozen=True, tag="tools"):
    """The results of the calls in the previous message, one for each call."""

    results: tuple[Answered, ...]


PromptMessage: TypeAlias = FromUser | FromModel | FromTools


class ToolSpec(Struct, frozen=True):
    """The description of a tool that a model receives; `schema` is the JSON Schema of its
    arguments."""

    name: str
    description: str
    schema: dict[str, Any]


class ModelCall(Struct, frozen=True, kw_only=True):
    """The complete input of one call of a model. `model` is the provider's name of the model. With
    `output`, the model must answer by calling that one tool. `session`, `run` and `step` say where
    the call was made.

    See [models](../models.md).
    """

    model: str
    system: str = ""
    messages: tuple[PromptMessage, ...] = ()
    tools: tuple[ToolSpec, ...] = ()
    output: ToolSpec | None = None
    settings: dict[str, Any] = {}
    run: str | None = None
    step: int = 0
    session: str | None = None


class TextChunk(Struct, frozen=True, tag="text"):
    """The next part of the answer's text."""

    text: str


class ThoughtChunk(Struct, frozen=True, tag="thought"):
    """The next part of the model's reasoning, if the model returns it."""

    text: str


class CallChunk(Struct, frozen=True, tag="call"):
    """A complete tool call. Arguments that are not valid JSON are passed as text."""

    name: str
    arguments: Any = None
    id: str | None = None


class BoundChunk(Struct, frozen=True, tag="bound"):
    """Data that only this model can read, such as signatures. It is stored unchanged, and sent back
    with the next prompt."""

    data: Any


StopReason: TypeAlias = Literal["stop", "calls", "length", "filtered", "other"]


class EndChunk(Struct, frozen=True, tag="end"):
    """The last chunk: the reason why the model stopped, and the usage of the call."""

    reason: StopReason = "stop"
    usage: dict[str, int] = field(default_factory=dict)


Chunk: TypeAlias = TextChunk | ThoughtChunk | CallChunk | BoundChunk | EndChunk


class Model(Protocol):
    """One model. `ref` is `provider/name`, and is recorded in the log with each answer.

    `stream` ends with exactly one `EndChunk`, or raises a `ModelError`; a stream that ends with
    neither was interrupted. Closing the generator ends the call.

    See [models](../models.md).
    """

    ref: str

    def stream(self, call: ModelCall) -> AsyncGenerator[Chunk, None]: ...


class Provider(Protocol):
    """A source of models: `openai/gpt-5.1` is model `gpt-5.1` of provider `openai`. `names` lists
    the models that may be requested; None means any.

    See [models](../models.md).
    """

    namespace: str
    names: Sequence[str] | None

    def model(self, name: str) -> Model: ...


def split_ref(ref: str, field: str = "model") -> tuple[str, str]:
    """Split a model reference: `a/b/c` is model `b/c` of provider `a`.

    See [models](../models.md).
    """
    namespace, slash, name = ref.partition("/") if isinstance(ref, str) else ("", "", "")
    if not (slash and namespace.strip() and name.strip()):
        raise InvalidValue(
            field=field,
            problem=f"is {ref!r}",
            remedy="write provider/model, such as openai/gpt-5.1",
        )
    return namespace, name
