"""A vendor to call, and a provider for each protocol that it speaks."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import AsyncIterator

import pytest

from holdfast.models import PydanticAIProvider

from .standin import Standin

KEY = "sk-never-to-be-shown"


@pytest.fixture(scope="session", autouse=True)
def vendors_packages_may_warn() -> None:
    """Google's own code has warnings for the compiler, which would be errors here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        importlib.import_module("pydantic_ai.models.google")


@pytest.fixture
async def vendor() -> AsyncIterator[Standin]:
    async with Standin() as standin:
        yield standin


@pytest.fixture
async def chatting(vendor: Standin) -> AsyncIterator[PydanticAIProvider]:
    url = f"{vendor.url}/v1"
    provider = PydanticAIProvider("lab", kind="openai-chat", api_key=KEY, base_url=url)
    yield provider
    await provider.aclose()


@pytest.fixture
async def responding(vendor: Standin) -> AsyncIterator[PydanticAIProvider]:
    provider = PydanticAIProvider("openai", api_key=KEY, base_url=f"{vendor.url}/v1")
    yield provider
    await provider.aclose()


@pytest.fixture
async def claude_provider(vendor: Standin) -> AsyncIterator[PydanticAIProvider]:
    provider = PydanticAIProvider("anthropic", api_key=KEY, base_url=vendor.url)
    yield provider
    await provider.aclose()


@pytest.fixture
async def gemini_provider(vendor: Standin) -> AsyncIterator[PydanticAIProvider]:
    provider = PydanticAIProvider("google", api_key=KEY, base_url=vendor.url)
    yield provider
    await provider.aclose()
