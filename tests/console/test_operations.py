"""What operators do with a session: look who drives it, check it, download it, delete it."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest
from playwright.async_api import expect

from holdfast import RunLimits

from .browser import Windows
from .server import Office
from .test_inbox import charging

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_a_run_is_watched_and_aborted(windows: Windows, office: Office) -> None:
    session = await (await office.client()).get_or_create("card")
    await charging(session, limits=RunLimits(steps=7))
    await session.post("And then this.")
    page = await windows.open(await office.key(), "/console/sessions/card?tab=operations")
    driver = page.get_by_role("region", name="Driver")
    await expect(driver).to_contain_text("unless renewed")
    await expect(driver).to_contain_text("1 step, 0 tokens; limits: steps 7")
    queue = page.get_by_role("region", name="Queue")
    await expect(queue).to_contain_text("And then this.")
    await queue.get_by_role("button", name="Remove").click()
    await expect(queue).to_have_count(0)
    await driver.get_by_role("button", name="Abort the run").click()
    await session.wait()
    await expect(driver).to_contain_text("idle")


async def test_a_session_is_checked_audited_downloaded_and_deleted(
    windows: Windows, office: Office, tmp_path: Path
) -> None:
    client = await office.client()
    session = await client.get_or_create("order-1")
    await session.send("Look 42")
    await session.send("Refund 42")
    await session.approve()
    await session.wait()
    page = await windows.open(await office.key("ben"), "/console/sessions/order-1?tab=operations")
    usage = page.get_by_role("region", name="Usage")
    await expect(usage).to_contain_text("scripted/")
    await page.get_by_role("button", name="Check now").click()
    await expect(page.get_by_role("region", name="Integrity")).to_contain_text("checked by ben")
    await expect(page.locator(".verify .pill.good")).to_have_text("verified")
    audit = page.get_by_role("region", name="Audit").locator("tbody tr")
    await expect(audit).to_have_count(2)
    await expect(audit.nth(1)).to_contain_text("approved by ann")
    await page.get_by_role("button", name="Show what is removed").click()
    await expect(page.locator(".download dl, .download [role=status]")).to_be_visible()
    async with page.expect_download() as waiting:
        await page.get_by_role("link", name="Download the bundle").click()
    download = await waiting.value
    assert download.suggested_filename == "order-1.zip"
    await download.save_as(tmp_path / "bundle.zip")
    assert zipfile.is_zipfile(tmp_path / "bundle.zip")
    await page.get_by_label("To delete this session").fill("order-1")
    await page.get_by_role("button", name="Delete the session").click()
    receipt = page.get_by_role("dialog", name="Session deleted")
    await expect(receipt).to_contain_text("order-1")
    await expect(receipt).to_contain_text("logs")
    await receipt.get_by_role("button", name="Close").click()
    await expect(page.get_by_role("dialog")).to_have_count(0)
    assert not (await client.list()).items


async def test_a_failed_run_says_why(windows: Windows, office: Office) -> None:
    session = await (await office.client()).get_or_create("order-2")
    await session.send("Fail")
    page = await windows.open(await office.key(), "/console/sessions/order-2?tab=operations")
    driver = page.get_by_role("region", name="Driver")
    await expect(driver).to_contain_text("failed")
    await expect(driver).to_contain_text("The model call failed.")


async def test_the_store_page_shows_health_and_scopes(windows: Windows, office: Office) -> None:
    page = await windows.open(await office.key(), "/console/store")
    await expect(page.locator(".health .pill.good")).to_have_text("ready")
    await expect(page.get_by_role("region", name="You")).to_contain_text("pending:decide")
