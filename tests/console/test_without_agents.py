"""`holdfast console`: a store in the browser, without any agent."""

from __future__ import annotations

import asyncio
import re
import signal
import sys
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, expect

from tests.servers.process import Program

from .browser import Windows
from .desk import desk

pytestmark = pytest.mark.asyncio(loop_scope="session")
CONSOLE = (sys.executable, "-m", "holdfast.cli", "console", "--port", "0")


async def filled(store: str) -> None:
    """Write a session with a fork, and with a call that waits for a person."""
    async with desk(store=store) as harness:
        session = await harness.get_or_create("order-1", user="ann")
        await session.send("Look 42")
        await session.thread.clone("Another try", id="fork1")
        result = await session.send("Refund 42")
        assert result.status == "waiting"


@pytest_asyncio.fixture(loop_scope="session")
async def address(tmp_path: Path) -> AsyncGenerator[str, None]:
    """The address that a console of one session prints: with the local token."""
    store = f"sqlite:{tmp_path}/sessions.db"
    await filled(store)
    program = Program(tmp_path / "words", dying=signal.SIGKILL)

    def printed() -> list[str]:
        return re.findall(r"open (http\S+)\n", (tmp_path / "words").read_text())

    await asyncio.to_thread(program.start, [*CONSOLE, "--store", store], lambda: bool(printed()))
    try:
        yield printed()[0]
    finally:
        await asyncio.to_thread(program.end, signal.SIGKILL)


async def test_threads_are_listed_and_items_decided(browser: Browser, address: str) -> None:
    windows = Windows(browser, address.partition("/console")[0])
    page = await windows.open(path=address)
    await page.locator(".list a").first.click()
    thread = page.get_by_label("Thread", exact=True)
    await thread.select_option("Another try")
    await expect(page).to_have_url(re.compile(r"\?thread=fork1$"))
    await expect(page.locator(".message")).to_have_count(3)
    await thread.select_option("main")
    await page.get_by_role("button", name="Approve", exact=True).click()
    await expect(page.locator("article.pending")).to_have_count(0)
    await windows.aclose()
    windows.check()
