"""Pages of the console have no violation that axe finds, in light and dark."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.async_api import Page, expect

from tests.node import node_modules

from .browser import PACKAGES, Windows
from .server import Office

pytestmark = pytest.mark.asyncio(loop_scope="session")
TABS = {"timeline": ".tick", "state": ".state", "operations": ".operations"}


async def check(page: Page) -> None:
    axe = node_modules(PACKAGES) / "axe-core" / "axe.min.js"
    await page.evaluate(axe.read_text())
    found = await page.evaluate("axe.run().then((result) => result.violations)")
    assert not found, "\n".join(shown(one) for one in found)


def shown(violation: dict[str, Any]) -> str:
    nodes = [f"  {node['html'][:200]} {node['failureSummary']}" for node in violation["nodes"][:5]]
    return "\n".join([f"{violation['id']}: {violation['help']}", *nodes])


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_pages_are_accessible(windows: Windows, office: Office, scheme: str) -> None:
    session = await (await office.client()).get_or_create("order-1", labels=["vip"])
    for message in ("Look 0", "Report", "Fail", "Refund 1"):
        await session.send(message)
    look: dict[str, Any] = {"color_scheme": scheme, "reduced_motion": "reduce"}
    page = await windows.open(await office.key(), **look)
    await expect(page.locator(".list li")).to_have_count(1)
    await expect(page.locator(".chip.waiting b")).to_have_text("1")
    await page.get_by_role("button", name="Filter", exact=True).click()
    await check(page)
    await page.goto("/console?q=delivered")
    await expect(page.locator(".hits li").first).to_be_visible()
    await check(page)
    for tab, sign in TABS.items():
        await page.goto(f"/console/sessions/order-1?tab={tab}")
        await expect(page.locator(sign).first).to_be_visible()
        await expect(page.locator(".message").first).to_be_visible()
        await check(page)
    await page.goto("/console/sessions/order-1?at=9")
    await expect(page.locator(".session")).to_have_attribute("data-at", "9")
    await page.locator(".call summary").first.click()
    await check(page)
