"""Calls a vendor's model: sends the request, reads the answer, and converts errors.

Imports pydantic-ai, so this module is imported only when a model is called.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, aclosing, suppress
from contextvars import ContextVar
from typing import Any, cast

from httpx2 import AsyncClient
from pydantic_ai.exceptions import UserError
from pydantic_ai.models import Model, StreamedResponse, create_async_httpx2_client, infer_model
from pydantic_ai.providers import Provider, infer_provider_class
from pydantic_ai.settings import ModelSettings

from ...errors import HoldfastError, MissingExtra, ModelError, ModelUnavailable
from ..port import Chunk, ModelCall
from .answers import VendorAnswer
from .failures import reported
from .prompts import messages, parameters

VARIABLE = re.compile(r"\b[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+\b")  # an environment variable
EXTRA = ("openai", "anthropic", "google")  # packages of the extra `models`

# Google's client does not close its responses, so those of the current call are closed here.
GOOGLE = ("google", "google-cloud")
_responses: ContextVar[list[Any] | None] = ContextVar("_responses", default=None)


class VendorConnection:
    """A vendor's client and its models, on one event loop."""

    def __init__(
        self,
        kind: str,
        provider: Provider[Any],
        loop: asyncio.AbstractEventLoop,
        client: AsyncClient | None = None,
    ) -> None:
        self.loop = loop
        self._client = client
        self._kind = kind
        self._provider = provider
        self._models: dict[str, Model[Any]] = {}
        self._open = False

    async def open(self) -> None:
        if not self._open:
            self._open = True
            await self._provider.__aenter__()

    async def close(self) -> None:
        if self._open:
            self._open = False
            await self._provider.__aexit__(None, None, None)
        if self._client is not None:
            await self._client.aclose()

    async def stream(
        self, ref: str, name: str, call: ModelCall, settings: Mapping[str, Any]
    ) -> AsyncGenerator[Chunk, None]:
        """Yield the chunks of one call. Every failure is a `ModelError`, including a stream that
        ends before the vendor has sent a stop reason."""
        async with AsyncExitStack() as stack:
            # An unexpected error of the request would recur; one of the response can be retried.
            with reported(ref, ModelError, "the request could not be created"):
                model = self._model(name)
                silence = _silence(model, settings)
                stream = await _ask(stack, model, call, settings, silence)
            answer = VendorAnswer(ref)
            with reported(ref, ModelUnavailable, "the response could not be decoded"):
                async with aclosing(_events(stream, silence)) as events:
                    async for event in events:
                        for chunk in answer.chunks_of(event):
                            yield chunk
                ending = answer.ending(stream)
            for chunk in ending:
                yield chunk

    def _model(self, name: str) -> Model[Any]:
        if name not in self._models:
            made = infer_model(f"{self._kind}:{name}", lambda _: self._provider)
            self._models[name] = made
        return self._models[name]


def connect(
    ref: str, kind: str, options: Mapping[str, Any], loop: asyncio.AbstractEventLoop
) -> VendorConnection:
    """Create a client of the vendor that pydantic-ai names `kind`. Blocks while it imports."""
    try:
        vendor = infer_provider_class(kind)
    except ImportError as error:
        raise _missing(ref, kind) from error
    except Exception as error:
        problem = f"pydantic-ai has no provider {kind!r}"
        remedy = f"pass PydanticAIProvider({ref.partition('/')[0]!r}, kind=…), or another provider"
        raise ModelError(model=ref, problem=problem, remedy=remedy) from error
    client = None
    if kind in GOOGLE and "http_client" not in options:
        client = _remembering_client()
        options = {**options, "http_client": client}
    try:
        provider = vendor(**options)
        infer_model(f"{kind}:{ref.partition('/')[2]}", lambda _: provider)
    except ImportError as error:
        raise _missing(ref, kind) from error
    except UserError as error:  # a missing key, and the variable that could hold it
        raise _unset(ref, kind, str(error)) from error
    except Exception as error:
        problem = (
            f"the provider {kind!r} cannot be created with {' and '.join(options) or 'no options'}"
        )
        remedy = f"check the environment variables for {kind!r}, or {_way(kind)}"
        raise ModelError(model=ref, problem=problem, remedy=remedy) from error
    return VendorConnection(kind, provider, loop, client)


def _unset(ref: str, kind: str, said: str) -> ModelError:
    """Return the error for a vendor's client that lacks a setting. Of pydantic-ai's message, it
    includes only the first sentence or the names of environment variables."""
    way, problem = _way(kind), said.partition(". ")[0]
    if names := list(dict.fromkeys(VARIABLE.findall(said))):
        way, problem = f"set {' and '.join(names)}, or {way}", "the key or the address is missing"
    return ModelError(model=ref, problem=problem, remedy=way)


def _way(kind: str) -> str:
    """Return a remedy: how a program configures a vendor's client."""
    return f"pass providers=[PydanticAIProvider({kind!r}, api_key=…)]"


def _remembering_client() -> AsyncClient:
    client = create_async_httpx2_client()
    client.event_hooks["response"].append(_remember)
    return client


async def _remember(response: Any) -> None:
    kept = _responses.get()
    if kept is not None:
        kept.append(response)


def _missing(ref: str, kind: str) -> HoldfastError:
    if kind.partition("-")[0] in EXTRA:
        return MissingExtra(extra="models", needed_for=ref)
    remedy = f"install it: pip install 'pydantic-ai-slim[{kind}]'"
    return ModelError(model=ref, problem="the provider needs an optional package", remedy=remedy)


async def _ask(
    stack: AsyncExitStack,
    model: Model[Any],
    call: ModelCall,
    settings: Mapping[str, Any],
    silence: float | None,
) -> StreamedResponse:
    wanted = {**settings, "max_retries": 0}
    if call.output is not None and call.tools:
        wanted["tool_choice"] = "none"  # no ordinary tool: only the output tool can be called
    sent = {k: v for k, v in wanted.items() if k not in model.unsupported_settings}
    prompt = messages(call, model.profile.get("tool_call_id_length"))
    asked = model.request_stream(prompt, cast(ModelSettings, sent), parameters(call))
    responses: list[Any] = []
    token = _responses.set(responses)
    try:
        async with asyncio.timeout(silence):
            stream = await stack.enter_async_context(asked)
    finally:
        _responses.reset(token)
    stack.push_async_callback(_hang_up, stream, responses)
    return stream


async def _hang_up(stream: StreamedResponse, responses: list[Any]) -> None:
    """Cancel an answer that is no longer needed, so that the vendor stops generating it. Has no
    effect if the answer is complete."""
    with suppress(Exception):  # if it cannot be cancelled, the connection is closed
        await stream.cancel()
    for response in responses:
        await response.aclose()


def _silence(model: Model[Any], settings: Mapping[str, Any]) -> float | None:
    """Return the number of seconds to wait for each chunk, or None if the vendor's client has its
    own timeout."""
    if "timeout" not in model.unsupported_settings:
        return None
    return cast(float, settings["timeout"])


async def _events(stream: StreamedResponse, silence: float | None) -> AsyncGenerator[Any, None]:
    events = aiter(stream)
    while True:
        async with asyncio.timeout(silence):
            event = await anext(events, None)
        if event is None:
            return
        yield event
