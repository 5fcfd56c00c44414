"""The pictures of docs/console.md. `HOLDFAST_TEST_SCREENSHOTS=docs/assets/console` keeps them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Page, expect

from holdfast.client import Client

from .browser import Windows
from .server import Office

pytestmark = pytest.mark.asyncio(loop_scope="session")
SIZE = {"width": 1200, "height": 700}
STORIES = {
    "order-4711": ["Hello", "Look 4711", "Refund 4711"],
    "order-17": ["Fail"],
    "march-report": ["Report the refunds of March"],
    "clerk-3": ["Delegate 42", "Hello again"],
    "order-99": ["Look 99", "Report on it", "Look 0", "Refund 99"],
    "delivery-day": ["Ask for the day"],
}


async def fill(client: Client) -> None:
    for id, messages in STORIES.items():
        label = "returns" if id.startswith("order") else "desk"
        session = await client.get_or_create(id, labels=[label])
        for message in messages:
            await session.send(message)


async def taken(page: Page, folder: Path, name: str) -> None:
    await page.evaluate("document.fonts.ready")
    path = folder / f"{name}.png"
    picture = await page.screenshot(path=path, animations="disabled", caret="hide")
    assert picture.startswith(b"\x89PNG")


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_pages_can_be_pictured(
    windows: Windows, office: Office, tmp_path: Path, scheme: str
) -> None:
    folder = Path(os.environ.get("HOLDFAST_TEST_SCREENSHOTS", tmp_path))
    await fill(await office.client())
    look: dict[str, Any] = {"color_scheme": scheme, "viewport": SIZE, "locale": "en-GB"}
    page = await windows.open(await office.key("ann"), **look)
    await expect(page.locator(".list li")).to_have_count(len(STORIES))
    await expect(page.locator(".chip.failed")).to_contain_text("1")
    await taken(page, folder, f"sessions-{scheme}")
    await page.goto("/console/sessions/order-99")
    await expect(page.locator(".tick").last).to_contain_text("run.waiting")
    await taken(page, folder, f"session-{scheme}")
    await page.goto("/console/sessions/order-99?at=22")
    await expect(page.locator(".session")).to_have_attribute("data-at", "22")
    await expect(page.locator(".tick.here")).to_contain_text("tool.finished")
    await page.locator(".call summary").last.click()
    await taken(page, folder, f"past-{scheme}")
