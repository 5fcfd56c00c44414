"""The list of sessions: live, filtered by the address, searched."""

from __future__ import annotations

import pytest
from playwright.async_api import expect

from .browser import Windows
from .server import Office

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_an_empty_list_says_what_to_do(windows: Windows, office: Office) -> None:
    page = await windows.open(await office.key())
    await expect(page.get_by_role("heading", name="No sessions yet")).to_be_visible()
    await page.goto("/console?label=vip")
    await page.get_by_role("link", name="Show all sessions").click()
    await expect(page.get_by_role("heading", name="No sessions yet")).to_be_visible()


async def test_the_list_is_live(windows: Windows, office: Office) -> None:
    client = await office.client()
    old = await client.get_or_create("order-1")
    await old.send("Hello")
    page = await windows.open(await office.key())
    rows = page.locator(".list li")
    await expect(rows).to_have_count(1)
    await expect(rows.first).to_contain_text("done")
    new = await client.get_or_create("order-2")
    await new.send("Refund 2")
    await expect(rows).to_have_count(2)
    await expect(rows.first).to_contain_text("refund(order='2')")
    await expect(rows.first).to_contain_text("waiting")
    await expect(page.locator(".chip.waiting")).to_contain_text("1")
    await page.locator(".chip.waiting").click()
    await expect(rows).to_have_count(1)
    (item,) = await new.pending()
    await new.deny(item.id, reason="not now")
    await expect(page.get_by_role("heading", name="No session matches")).to_be_visible()


async def test_filters_are_in_the_address(windows: Windows, office: Office) -> None:
    client = await office.client()
    for number in range(3):
        gold = {"tier": "gold"} if number else {}
        one = await client.get_or_create(f"order-{number}", labels=["vip"], metadata=gold)
        await one.send("Fail" if number == 2 else "Hello")
    page = await windows.open(await office.key(), "/console?metadata=tier%3Dgold")
    rows = page.locator(".list li")
    await expect(rows).to_have_count(2)
    await page.get_by_role("button", name="Filter", exact=True).click()
    await page.get_by_label("Run status").last.select_option("failed")
    await expect(rows).to_have_count(1)
    await page.go_back()
    await expect(rows).to_have_count(2)
    await page.get_by_role("button", name="Remove the filter metadata").click()
    await expect(rows).to_have_count(3)
    await rows.first.get_by_role("link").focus()
    await page.keyboard.press("j")
    await page.keyboard.press("Enter")
    await expect(page).to_have_url(f"{office.server.url}/console/sessions/order-1")


async def test_filters_fit_on_a_phone(windows: Windows, office: Office) -> None:
    page = await windows.open(await office.key(), viewport={"width": 390, "height": 844})
    await page.get_by_role("button", name="Filter", exact=True).click()
    box = await page.locator(".popover").bounding_box()
    assert box is not None
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= 390


async def test_search_finds_texts_and_opens_the_event(windows: Windows, office: Office) -> None:
    client = await office.client()
    session = await client.get_or_create("order-7")
    await session.send("Look 7")
    page = await windows.open(await office.key())
    await expect(page.locator(".list li")).to_have_count(1)
    await page.keyboard.press("/")
    await page.keyboard.type("delivered")
    hits = page.locator(".hits li")
    await expect(hits).to_have_count(2)
    await expect(hits.first.locator("mark")).to_have_text("delivered")
    await page.get_by_role("button", name="Filter", exact=True).click()
    popover = page.locator(".popover")
    await expect(popover.get_by_label("Agent")).to_be_visible()
    await expect(popover.get_by_label("Run status")).to_have_count(0)  # a search has no such filter
    await popover.get_by_role("button", name="Done").click()
    await hits.first.get_by_role("link").click()
    await expect(page).to_have_url(f"{office.server.url}/console/sessions/order-7?at=10")
