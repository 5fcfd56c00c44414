"""Models of all vendors, through pydantic-ai's model classes.

They are used for single streamed calls; pydantic-ai's agents, tools and retries are not used.
Importing this module is fast: pydantic-ai and the vendor's package are imported in a thread when a
model is first called.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Mapping, Sequence
from importlib import import_module
from importlib.machinery import PathFinder
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from ...errors import InvalidValue, MissingExtra
from ..port import Chunk, ModelCall

if TYPE_CHECKING:
    from .calls import VendorConnection

TIMEOUT = 600.0
PACKAGE = "pydantic_ai"

# The vendors that pydantic-ai supports, so that others are rejected without importing it.
KINDS = frozenset(
    """
    alibaba anthropic azure azure-responses bedrock bedrock-mantle cerebras cohere crusoe deepseek
    elevenlabs fireworks github github-copilot google google-cloud groq heroku huggingface litellm
    meta mistral moonshotai nebius ollama openai openai-chat openai-chatgpt openai-codex
    openai-decisions openai-responses openrouter ovhcloud sambanova sentence-transformers snowflake
    system-one together typesafe vercel vllm voyageai xai zai
    """.split()  # noqa: SIM905 - a list would take forty lines
)


def installed() -> bool:
    """Return whether pydantic-ai is installed; does not import it."""
    return find_spec(PACKAGE) is not None


def knows(kind: str) -> bool:
    """Return whether pydantic-ai supports a vendor with this name: the name is in `KINDS`, or is
    the name of a provider module in a later version of pydantic-ai."""
    if kind in KINDS:
        return True
    found = find_spec(PACKAGE)
    folders = [] if found is None else [*(found.submodule_search_locations or ())]
    name = kind.replace("-", "_")
    return name.isidentifier() and any(
        PathFinder.find_spec(name, [f"{folder}/providers"]) for folder in folders
    )


class PydanticAIProvider:
    """The models of one vendor. `kind` is pydantic-ai's name of the vendor (`openai`,
    `openai-chat`, `anthropic`, `google`, `groq` …); the default is the namespace.

    Without `api_key` and `base_url`, the vendor's own environment variables are used. `settings`
    are pydantic-ai's model settings, for every call. `timeout` is the longest time, in seconds,
    without data from the vendor. The caller closes `http_client`; `aclose` closes everything else,
    and the next call opens it again. Use a provider on one event loop at a time.

    See [models](../models.md).
    """

    def __init__(
        self,
        namespace: str,
        *,
        kind: str | None = None,
        api_key: str | None = None,
        base_url: str | None = None,
        names: Sequence[str] | None = None,
        settings: Mapping[str, Any] | None = None,
        timeout: float = TIMEOUT,
        http_client: Any = None,
    ) -> None:
        if timeout <= 0:
            raise InvalidValue(
                field="timeout", problem=f"is {timeout}", remedy="pass a number of seconds > 0"
            )
        self.namespace = namespace
        self.names = names
        self.kind = kind or namespace
        self.settings = dict(settings or {})
        self.timeout = timeout
        given = {"api_key": api_key, "base_url": base_url, "http_client": http_client}
        self._options = {name: value for name, value in given.items() if value is not None}
        self._lock = threading.Lock()
        self._connection: VendorConnection | None = None

    def __repr__(self) -> str:
        return f"PydanticAIProvider({self.namespace!r})"

    def model(self, name: str) -> PydanticAIModel:
        """Return the model with this name. Opens no connection and does not check that the model
        exists."""
        if not installed():
            raise MissingExtra(extra="models", needed_for=f"{self.namespace}/{name}")
        return PydanticAIModel(self, name)

    async def connection(self, name: str) -> VendorConnection:
        """Return the vendor's connection for the current event loop. `name` is the model that needs
        it."""
        loop = asyncio.get_running_loop()
        connection = self._connection
        if connection is None or connection.loop is not loop:
            connection = await asyncio.to_thread(self._connect, name, loop)
        await connection.open()
        return connection

    def _connect(self, name: str, loop: asyncio.AbstractEventLoop) -> VendorConnection:
        ref = f"{self.namespace}/{name}"
        try:
            connect = import_module(f"{__name__}.calls").connect  # imports pydantic-ai
        except ImportError as error:
            raise MissingExtra(extra="models", needed_for=ref) from error
        with self._lock:
            if self._connection is None or self._connection.loop is not loop:
                self._connection = connect(ref, self.kind, self._options, loop)
            return self._connection

    async def aclose(self) -> None:
        """Close the connections to the vendor. Safe to call twice."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()


class PydanticAIModel:
    """One model of a vendor. It does not retry calls: the harness decides about retries."""

    def __init__(self, provider: PydanticAIProvider, name: str) -> None:
        self.ref = f"{provider.namespace}/{name}"
        self.name = name
        self._provider = provider

    def __repr__(self) -> str:
        return f"PydanticAIModel({self.ref})"

    async def stream(self, call: ModelCall) -> AsyncGenerator[Chunk, None]:
        connection = await self._provider.connection(self.name)
        settings = {"timeout": self._provider.timeout, **self._provider.settings, **call.settings}
        chunks = connection.stream(self.ref, self.name, call, settings)
        try:
            async for chunk in chunks:
                yield chunk
        finally:
            await chunks.aclose()


def provider(namespace: str) -> PydanticAIProvider:
    """Return a provider for the vendor with this name. The API key is read from the environment.

    See [models](../models.md).
    """
    return PydanticAIProvider(namespace)
