"""Deciding in the console: windows of several people, the keyboard, votes and unknown outcomes."""

from __future__ import annotations

import pytest
from playwright.async_api import Page, expect

from holdfast import RunLimits
from holdfast.client import Session

from .browser import Windows
from .desk import LARGE
from .server import EVERYTHING, Office, Server

pytestmark = pytest.mark.asyncio(loop_scope="session")
INBOX = "/console/inbox"
MANY = 50


async def begun(office: Office, id: str, said: str, by: str = "ann") -> Session:
    """Return a session that waits for a person."""
    session = await (await office.client(by)).get_or_create(id)
    result = await session.send(said)
    assert result.status == "waiting"
    return session


async def charging(session: Session, limits: RunLimits | None = None) -> None:
    """Wait until a tool runs that never ends."""
    await session.post("Charge 42", limits=limits)
    async for item in session.follow(0):
        if getattr(item, "kind", None) == "tool.started":
            return


async def chosen(page: Page, text: str) -> None:
    """Wait until the chosen item shows this text, and its controls."""
    await expect(page.locator(".chosen .pending")).to_contain_text(text)


async def test_what_is_approved_in_one_window_is_seen_in_another(
    windows: Windows, office: Office
) -> None:
    one = await windows.open(await office.key("ann"), INBOX)
    await expect(one.get_by_text("Nothing waits for a person")).to_be_visible()
    session = await begun(office, "customer-42", "Refund 42")
    other = await windows.open(await office.key("ben"), INBOX)
    conversation = await windows.open(await office.key("cleo"), "/console/sessions/customer-42")
    await chosen(other, "refund(order='42')")
    await chosen(one, '"order": "42"')  # live, without reload
    await expect(conversation.locator("article.pending")).to_be_visible()
    await one.get_by_role("button", name="Approve", exact=True).click()
    await expect(other.get_by_text("Nothing waits for a person")).to_be_visible()
    row = other.locator(".recent tbody tr")
    await expect(row).to_contain_text("approved")
    await expect(row).to_contain_text("ann over http")
    answer = conversation.locator(".message").get_by_text("The refund is on its way.")
    await expect(answer).to_be_visible()
    await expect(conversation.locator("article.pending")).to_have_count(0)
    assert (await session.status()).phase == "idle"


async def test_arguments_are_edited_and_a_denial_has_a_reason(
    windows: Windows, office: Office
) -> None:
    first, second = await begun(office, "a", "Refund 1"), await begun(office, "b", "Refund 2")
    page = await windows.open(await office.key("ann"), INBOX)
    await chosen(page, "refund(order='1')")
    await page.get_by_role("button", name="Edit and approve").click()
    field = page.get_by_label("Arguments as JSON")
    await expect(field).to_be_focused()
    await field.fill("{")
    await field.press("Control+Enter")
    await expect(page.get_by_role("alert")).to_contain_text("This is not JSON")
    await field.fill('{"order": "1", "cents": 5}')
    await field.press("Control+Enter")
    await chosen(page, "refund(order='2')")
    await page.get_by_role("button", name="Deny…").click()
    await page.get_by_label("Reason").fill("Not this one.")
    await page.get_by_role("button", name="Deny", exact=True).click()
    await expect(page.get_by_text("Nothing waits for a person")).to_be_visible()
    (one,) = await first.audit()
    assert one.changed == {"order": "1", "cents": 5}
    (two,) = await second.audit()
    assert [(made.outcome, made.reason) for made in two.decisions] == [("denied", "Not this one.")]


async def test_a_number_that_a_script_would_round_is_shown_and_edited_as_it_is(
    windows: Windows, office: Office
) -> None:
    session = await begun(office, "a", "Large")
    page = await windows.open(await office.key("ann"), INBOX)
    await chosen(page, f'"cents": {LARGE}')
    await page.get_by_role("button", name="Edit and approve").click()
    field = page.get_by_label("Arguments as JSON")
    await expect(field).to_have_value(f'{{\n  "order": "1",\n  "cents": {LARGE}\n}}')
    await field.fill(f'{{"order": "2", "cents": {LARGE}}}')
    await field.press("Control+Enter")
    await expect(page.get_by_text("Nothing waits for a person")).to_be_visible()
    await session.wait()
    (one,) = await session.audit()
    assert one.changed == {"order": "2", "cents": LARGE}


async def test_an_item_shows_what_was_said_before_and_is_extended(
    windows: Windows, office: Office
) -> None:
    session = await begun(office, "a", "Wire 900")
    (item,) = await session.pending()
    page = await windows.open(await office.key("ann"), INBOX)
    await chosen(page, "Expires")
    before = page.get_by_role("region", name="What was said before")
    await expect(before).to_contain_text("Wire 900")
    await page.get_by_label("Extend").select_option("1 week from now")
    await expect(page.get_by_label("Extend")).to_be_enabled()
    (later,) = await session.pending()
    assert item.expires is not None
    assert later.expires is not None
    assert later.expires > item.expires + 500_000_000
    await page.get_by_label("Extend").select_option("Never expires")
    await expect(page.locator(".chosen .pending")).not_to_contain_text("Expires")


async def test_many_items_are_decided_with_the_keyboard(windows: Windows, office: Office) -> None:
    for number in range(MANY):
        await begun(office, f"c{number:02}", f"Refund {number}")
    page = await windows.open(await office.key("ann"), INBOX)
    press = page.keyboard.press
    await chosen(page, "refund(order='0')")
    await press("j")
    await chosen(page, "refund(order='1')")
    await press("k")
    await chosen(page, "refund(order='0')")
    for number in range(MANY):
        await chosen(page, f"refund(order='{number}')")
        if number % 2:
            await press("d")
            await page.keyboard.type("No j, k or a.")
            await press("Enter")
        else:
            await press("a")
    await expect(page.get_by_text("Nothing waits for a person")).to_be_visible()
    decisions = page.locator(".recent tbody tr")
    await expect(decisions).to_have_count(MANY)
    await expect(decisions.filter(has_text="denied")).to_have_count(MANY // 2)
    await press("?")
    await expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
    await press("Escape")
    await expect(page.get_by_role("dialog")).to_have_count(0)


async def test_questions_and_plans_are_answered(windows: Windows, office: Office) -> None:
    for id, said in (("a", "Ask"), ("b", "Name"), ("c", "Plan")):
        await begun(office, id, said)
    page = await windows.open(await office.key("ann"), INBOX)
    press = page.keyboard.press
    await chosen(page, "Which day?")
    await press("c")
    await press("ArrowDown")
    await expect(page.get_by_label("Friday")).to_be_checked()
    await press("a")
    await chosen(page, "What is your name?")
    await press("a")
    await page.keyboard.type("Zoë")
    await press("Enter")
    await chosen(page, "1. pack")
    await press("a")
    await expect(page.get_by_text("Nothing waits for a person")).to_be_visible()
    client = await office.client()
    for id, said in (("a", "Friday"), ("b", "Zoë"), ("c", "approved")):
        session = await client.get_or_create(id)
        await session.wait()
        assert said in str((await session.audit())[0])


async def test_no_other_item_takes_the_place_of_one_that_somebody_else_decides(
    windows: Windows, office: Office
) -> None:
    first, second = await begun(office, "a", "Refund 1"), await begun(office, "b", "Refund 2")
    page = await windows.open(await office.key("ann"), INBOX)
    await chosen(page, "refund(order='1')")
    await first.approve()
    note = page.get_by_text("This item does not wait any more.")
    await expect(note).to_be_visible()
    await page.keyboard.press("a")  # meant for the first
    await page.keyboard.press("j")
    await chosen(page, "refund(order='2')")
    assert (await second.status()).pending == 1
    await page.keyboard.press("a")
    await expect(page.get_by_text("Nothing waits for a person")).to_be_visible()
    await begun(office, "c", "Refund 3")
    await chosen(page, "refund(order='3')")


async def test_two_approvers_vote(windows: Windows, office: Office) -> None:
    session = await begun(office, "bank", "Wire 900")
    ann = await windows.open(await office.key("ann"), INBOX)
    ben = await windows.open(await office.key("ben"), INBOX)
    await chosen(ann, "0 of 2 approvals")
    await chosen(ben, "0 of 2 approvals")
    await ann.get_by_role("button", name="Approve", exact=True).click()
    await chosen(ann, "1 of 2 approvals: ann")
    await chosen(ben, "1 of 2 approvals: ann")
    await expect(ann.get_by_role("button", name="Approve", exact=True)).to_be_disabled()
    assert (await session.status()).pending == 1
    await ben.get_by_role("button", name="Approve", exact=True).click()
    for page in (ann, ben):
        await expect(page.get_by_text("Nothing waits for a person")).to_be_visible()
    (call,) = await session.audit()
    assert {one.by for one in call.decisions} == {"ann", "ben"}


@pytest.mark.parametrize(
    ("key", "outcome"), [("y", "It was charged twice."), ("n", "It did not happen.")]
)
async def test_an_unknown_outcome_is_settled_in_place(
    windows: Windows, office: Office, server: Server, key: str, outcome: str
) -> None:
    session = await (await office.client()).get_or_create(f"card-{key}")
    await charging(session)
    page = await windows.open(await office.key("ann"), INBOX)
    await expect(page.get_by_text("Nothing waits for a person")).to_be_visible()
    windows.expect("net::ERR_", "status of 503")  # the page tries to reach the server meanwhile
    await server.kill()
    await server.start()
    await chosen(page, "Did this happen?")  # without reload
    await chosen(page, "The process ended while charge was running.")
    await page.keyboard.press(key)
    if key == "y":
        field = page.get_by_label("What came of it?")
        await field.fill(outcome)
        await field.press("Enter")
    await expect(page.get_by_text("Nothing waits for a person")).to_be_visible()
    await session.wait()
    (call,) = await session.audit()
    assert outcome in str(call)


async def test_scopes_decide_which_buttons_there_are(windows: Windows, office: Office) -> None:
    await begun(office, "customer-1", "Refund 1")
    reads = await office.key("ann", ["sessions:read", "sessions:all"])
    page = await windows.open(reads, INBOX)
    await chosen(page, "deciding needs the scope pending:decide")
    await expect(page.locator(".chosen .pending button")).to_have_count(0)
    await page.keyboard.press("a")
    await page.goto("/console/sessions/customer-1?tab=operations")
    await expect(page.get_by_role("heading", name="Driver")).to_be_visible()
    await expect(page.get_by_role("button", name="Check now")).to_be_visible()
    for name in ("Abort", "Delete", "Download", "Approve", "Send"):
        await expect(page.get_by_role("button", name=name)).to_have_count(0)
        await expect(page.get_by_role("link", name=name)).to_have_count(0)
    decides = await office.key("ann", [one for one in EVERYTHING if one != "sessions:write"])
    page = await windows.open(decides, INBOX)
    await expect(
        page.locator(".chosen").get_by_role("button", name="Approve", exact=True)
    ).to_be_visible()


async def test_logging_out_ends_everything(windows: Windows, office: Office) -> None:
    await begun(office, "customer-1", "Refund 1")
    page = await windows.open(await office.key("ann"), INBOX)
    await chosen(page, "refund")
    second = await page.context.new_page()
    await second.goto("/console/sessions/customer-1")
    await expect(second.locator("article.pending")).to_be_visible()
    windows.expect("status of 401")
    await page.get_by_role("button", name="Log out").click()
    await expect(page.get_by_role("heading", name="Log in to Holdfast")).to_be_visible()
    await expect(page.get_by_text("refund")).to_have_count(0)
    await page.go_back()
    await expect(page.get_by_text("refund")).to_have_count(0)
    # The other window only follows streams.
    await expect(second.get_by_role("heading", name="Log in to Holdfast")).to_be_visible()
    await expect(second.get_by_text("refund")).to_have_count(0)
