"""The recipe of a chat in a web page, in a real browser, with a server that is killed and started
again."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path

from playwright.async_api import Page, expect

from tests.console.browser import launched
from tests.examples.serving import served
from tests.servers.process import free_port

EXAMPLES = Path(__file__).parents[2] / "examples"


async def test_a_chat_is_streamed_approved_and_survives_a_killed_server(tmp_path: Path) -> None:
    for name in ("fastapi_app.py", "fastapi_chat.html"):
        shutil.copy(EXAMPLES / name, tmp_path)
    port = free_port()
    words = ["-m", "uvicorn", "fastapi_app:app", "--port", str(port), "--log-level", "warning"]
    with served(words, tmp_path, port) as server:
        async with launched() as browser:
            page, other = await browser.new_page(), await browser.new_page()
            await page.goto(server.url)
            await other.goto(server.url)
            await _say(page, "hello")
            for each in (page, other):
                await expect(each.get_by_text("You said: hello")).to_be_visible()
            await _say(page, "refund order=42 cents=1999")
            await expect(other.get_by_role("button", name="Approve")).to_be_visible()

            server.end(signal.SIGKILL)
            await _say(page, "sent while the server is down")
            server.restart()  # the pages connect again by themselves
            await expect(other.get_by_text("You: sent while the server")).to_be_visible(
                timeout=60_000
            )
            await other.get_by_role("button", name="Approve").click()
            for each in (page, other):
                done = each.get_by_text("refunded 1999 cents of order 42").first
                await expect(done).to_be_visible(timeout=60_000)
                await expect(each.get_by_role("button", name="Approve")).to_have_count(0)
                await expect(each.get_by_text("You: hello")).to_have_count(1)
            assert server.end(signal.SIGTERM) in (0, -signal.SIGTERM)


async def _say(page: Page, text: str) -> None:
    await page.locator("#text").fill(text)
    await page.keyboard.press("Enter")
