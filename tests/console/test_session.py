"""One session: its conversation as it happens, its timeline, and its past."""

from __future__ import annotations

import asyncio
import re

import pytest
from playwright.async_api import Locator, expect

import holdfast
from holdfast import Media, NewEvent
from holdfast.server import ApiKeys
from tests.server.test_inspection import PNG

from .browser import Windows
from .server import EVERYTHING, Office, Server

pytestmark = pytest.mark.asyncio(loop_scope="session")
SLOW = 30_000  # ms; only a hang takes so long


async def test_calls_are_folded_with_arguments_and_results(
    windows: Windows, office: Office
) -> None:
    session = await (await office.client()).get_or_create("order-1")
    await session.send("Look 42")
    page = await windows.open(await office.key(), "/console/sessions/order-1")
    call = page.locator(".call")
    await expect(call).to_contain_text("lookup")
    await expect(call.locator(".result")).to_contain_text('state: "delivered"')
    await expect(page.get_by_text('"customer": "ann"')).to_have_count(0)
    await call.locator("summary").first.click()
    await expect(call).to_contain_text('"customer": "ann"')
    await expect(call).to_contain_text("Arguments")
    await expect(page.locator(".message.assistant").last).to_contain_text("It was delivered.")
    await session.send("Look 0")
    await expect(page.locator(".call.failed .result.problem")).to_have_text("The tool failed.")


async def test_a_sub_agent_is_nested_in_the_call_that_started_it(
    windows: Windows, office: Office
) -> None:
    session = await (await office.client()).get_or_create("order-2")
    await session.send("Delegate 42")
    page = await windows.open(await office.key(), "/console/sessions/order-2")
    call = page.locator(".call").first
    await call.locator("summary").first.click()
    nested = page.locator(".nested")
    await expect(nested.locator(".message")).to_have_count(3)
    await expect(nested).to_contain_text("It was delivered.")
    await page.get_by_role("link", name="Open its thread").click()
    await expect(page).to_have_url(re.compile("thread=sub%2F"))
    await expect(page.locator(".message")).to_have_count(3)


async def test_a_message_is_sent_and_its_answer_appears(windows: Windows, office: Office) -> None:
    await (await office.client()).get_or_create("order-3")
    page = await windows.open(await office.key(), "/console/sessions/order-3")
    await expect(page.get_by_role("heading", name="No messages yet")).to_be_visible()
    await page.get_by_role("textbox", name="Message").fill("Hello")
    await page.keyboard.press("Enter")
    await expect(page.locator(".message.assistant")).to_contain_text("Good day.")
    await page.get_by_role("textbox", name="Message").fill("Fail")
    await page.get_by_role("button", name="Send", exact=True).click()
    await expect(page.get_by_role("alert")).to_contain_text("model_failed")


async def test_a_killed_server_is_waited_for_during_a_stream(
    server: Server, windows: Windows, office: Office
) -> None:
    session = await (await office.client()).get_or_create("story-1")
    page = await windows.open(await office.key(), "/console/sessions/story-1")
    await expect(page.get_by_role("heading", name="No messages yet")).to_be_visible()
    await page.evaluate("window.same = true")
    windows.expect("net::ERR_")
    await session.post("Story")
    await expect(page.locator(".writing")).to_contain_text("word5 ", timeout=SLOW)
    await server.kill()
    await expect(page.get_by_text("Reconnecting")).to_be_visible()
    await server.start()
    whole = page.locator(".message.assistant", has_text="word119")
    await expect(whole).to_be_visible(timeout=SLOW)
    await expect(page.locator(".status").first).to_contain_text("done", timeout=SLOW)
    await expect(page.locator(".writing")).to_have_count(0)
    assert await page.evaluate("window.same")


async def test_an_earlier_state_is_shown_and_forked(windows: Windows, office: Office) -> None:
    windows.expect("status of 409")
    session = await (await office.client()).get_or_create("order-4", title="A late order")
    await session.send("Look 42")
    await session.send("Hello")
    page = await windows.open(await office.key(), "/console/sessions/order-4")
    scrub = page.get_by_label("Time travel")
    messages = page.locator(".message")
    await expect(messages).to_have_count(5)
    await expect(scrub).to_contain_text("16 / 16")
    await page.keyboard.press("ArrowLeft")
    await page.keyboard.press("Shift+ArrowLeft")
    await expect(page).to_have_url(re.compile(r"\?at=5$"))
    await expect(scrub).to_contain_text("context.built")
    await expect(messages).to_have_count(1)
    await page.keyboard.press("ArrowRight")
    await expect(messages).to_have_count(2)
    await expect(page.locator(".call")).to_contain_text("proposed")
    await page.get_by_role("button", name="Fork from here").click()
    await page.get_by_role("button", name="Fork at event 2").click()
    await expect(page).to_have_url(re.compile("thread="))
    await expect(messages).to_have_count(1)
    await expect(page.get_by_label("Thread", exact=True)).to_be_visible()
    await expect(page.get_by_role("heading", name="A late order")).to_be_visible()
    await expect(page.locator(".tick.here, .tick").last).to_contain_text("from main at event 2")
    await page.get_by_role("button", name="Send it again").click()  # nothing answers it here
    await expect(messages.last).to_contain_text("It was delivered.")
    await expect(page.get_by_role("button", name="Send it again")).to_have_count(0)
    await page.get_by_label("Thread", exact=True).select_option("main")
    await expect(messages).to_have_count(5)


async def test_an_answer_is_regenerated_in_a_thread_of_its_own(
    windows: Windows, office: Office
) -> None:
    session = await (await office.client()).get_or_create("order-5")
    await session.send("Look 42")
    page = await windows.open(await office.key(), "/console/sessions/order-5")
    first = page.locator(".message.user")
    await first.hover()
    await first.get_by_role("button", name="Edit").click()
    await first.get_by_role("textbox").fill("Look 43")
    await first.get_by_role("button", name="Send in a new thread").click()
    await expect(page).to_have_url(re.compile("thread="))
    await expect(page.locator(".call")).to_contain_text('"43"')
    await page.get_by_label("Thread", exact=True).select_option("main")
    await expect(page.locator(".call")).to_contain_text('"42"')
    await first.hover()
    await first.get_by_role("button", name="Regenerate").click()
    await expect(page).to_have_url(re.compile("thread="))
    await expect(page.locator(".message.assistant").last).to_contain_text("It was delivered.")
    await expect(page.get_by_label("Thread", exact=True).locator("option")).to_have_count(3)


async def test_the_timeline_has_every_event_and_opens_one(
    server: Server, windows: Windows, office: Office
) -> None:
    session = await (await office.client()).get_or_create("order-6")
    await session.send("Look 42")
    page = await windows.open(await office.key(), "/console/sessions/order-6")
    rows = page.locator(".tick")
    await expect(rows).to_have_count(11)
    await expect(rows.nth(5)).to_contain_text("908 tokens")
    await expect(page.locator(".wave .tool")).to_have_count(1)
    await expect(rows.nth(7)).to_contain_text("tool.finished lookup")
    await rows.nth(7).get_by_role("button").last.click()
    await expect(page.locator(".detail")).to_contain_text('"customer": "ann"')
    await session.send("Hello")
    await expect(rows).to_have_count(16)
    await rows.nth(3).get_by_role("button").first.click()
    await expect(page).to_have_url(re.compile(r"\?at=4$"))
    await expect(page.locator(".tick.here")).to_contain_text("model.called")
    await page.goto("/console/sessions/order-6")
    await session.send("Look 0")
    async with holdfast.connect(server.store) as store:
        own = NewEvent.of("shop.counted", {"calls": 3, "call": None})
        await store.append(holdfast.key("order-6", tenant=office.tenant), [own])
    await expect(rows.last).to_contain_text("shop.counted")
    await expect(page.locator(".tick.bad")).to_contain_text(
        "tool.finished lookup: The tool failed."
    )


async def test_attachments_are_shown_as_images_or_downloaded(
    windows: Windows, office: Office
) -> None:
    session = await (await office.client()).get_or_create("order-7")
    page = b"<script>window.ran = 1</script>"
    await session.send(
        ["Look", Media(PNG, "image/png", "cat.png"), Media(page, "text/html", "page.html")]
    )
    await session.send(["Look", Media(b"no image", "image/png", "broken.png")])
    shown = await windows.open(await office.key(), "/console/sessions/order-7")
    image = shown.get_by_role("img", name="cat.png")
    await expect(image).to_be_visible()
    assert await image.evaluate("(image) => image.decode().then(() => image.naturalWidth)") == 1
    await expect(shown.get_by_text("This image cannot be shown.")).to_be_visible()
    async with shown.expect_download() as waiting:
        await shown.get_by_role("link", name="page.html").click()
    download = await waiting.value
    assert download.suggested_filename == "page.html"
    assert await asyncio.to_thread((await download.path()).read_bytes) == page
    assert await shown.evaluate("window.ran") is None


async def test_a_revoked_key_leads_to_the_login(
    server: Server, windows: Windows, office: Office
) -> None:
    """The page follows streams all the time, and nobody does anything in it."""
    windows.expect("status of 401")
    await (await office.client()).get_or_create("order-9")
    async with holdfast.connect(server.store) as store:
        keys = ApiKeys(store)
        made = await keys.create(principal="ann", tenant=office.tenant, scopes=EVERYTHING)
        page = await windows.open(made.key, "/console/sessions/order-9")
        await expect(page.get_by_role("heading", name="No messages yet")).to_be_visible()
        await keys.revoke(made.info.id)
    await expect(page.get_by_role("heading", name="Log in to Holdfast")).to_be_visible()
    await expect(page.get_by_text("order-9")).to_have_count(0)


async def test_many_windows_of_a_browser_leave_connections_for_requests(
    windows: Windows, office: Office
) -> None:
    """Browsers open six connections to a server, and each stream needs one."""
    session = await (await office.client()).get_or_create("order-10")
    await session.send("Delegate 42")
    context = await windows.context(await office.key())
    for _ in range(5):
        page = await context.new_page()
        await page.goto("/console/sessions/order-10")
        await expect(page.locator(".message").last).to_contain_text("The clerk did.")
    await session.send("Refund 42")
    await expect(page.locator("article.pending")).to_be_visible()
    await expect(page.locator(".badge")).to_have_text("1")


async def test_what_does_not_exist_says_so(windows: Windows, office: Office) -> None:
    # A request while the session is deleted is answered by 503, and repeated.
    windows.expect("status of 404", "status of 503")
    page = await windows.open(await office.key(), "/console/sessions/nobody")
    await expect(page.get_by_role("heading", name="does not exist")).to_be_visible()
    session = await (await office.client()).get_or_create("order-8")
    await session.send("Hello")
    await page.goto("/console/sessions/order-8")
    await expect(page.locator(".message")).to_have_count(2)
    await session.delete()
    await expect(page.get_by_role("heading", name="was deleted")).to_be_visible()


async def test_few_rows_of_a_long_session_are_in_the_page(
    server: Server, windows: Windows, office: Office
) -> None:
    session = await (await office.client()).get_or_create("long-1")
    await session.send("Hello")
    async with holdfast.connect(server.store) as store:
        said = [NewEvent.of("message.completed", {"text": f"Text {n}."}) for n in range(1, 501)]
        await store.append(holdfast.key("long-1", tenant=office.tenant), said)
    page = await windows.open(await office.key(), "/console/sessions/long-1")
    log, rows = page.locator(".conversation"), page.locator(".message")
    await expect(rows.last).to_contain_text("Text 500.")
    assert await rows.count() <= 60
    assert await page.locator(".tick").count() <= 80
    await scrolled(log, "0", page.locator(".message", has_text="Good day."))
    assert await rows.count() <= 150
    await expect(page.locator(".message", has_text="Text 500.")).to_have_count(0)
    await scrolled(log, "box.scrollHeight", page.locator(".message", has_text="Text 500."))
    assert await rows.count() <= 150


CALLS = 10_000
NAMES = (
    "<img src=x onerror=window.ran=1>",
    "[x](javascript:window.ran=1)",
    "\u202eelif_eteled",
    "__proto__",
    "x" * 250,
)


def calling(number: int, size: int) -> list[NewEvent]:
    """Return the events of one message with so many calls, and of their results."""
    calls = [(f"c{number + n}", NAMES[n % len(NAMES)]) for n in range(size)]
    asked = [{"id": id, "name": name, "arguments": {name: name}} for id, name in calls]
    return [
        NewEvent.of("message.completed", {"text": f"Text {number}.", "calls": asked}),
        *(NewEvent.of("tool.started", {"call": id, "name": name}) for id, name in calls),
        *(NewEvent.of("tool.finished", {"call": id, "result": name}) for id, name in calls),
    ]


async def test_ten_thousand_calls_with_hostile_names_are_shown(
    server: Server, windows: Windows, office: Office
) -> None:
    session = await (await office.client()).get_or_create("long-2")
    await session.send("Hello")
    async with holdfast.connect(server.store) as store:
        key = holdfast.key("long-2", tenant=office.tenant)
        for size in (400, 100):  # one message has more calls than are shown at first
            for number in range(0, CALLS // 2, size):
                await store.append(key, calling(number + (CALLS // 2) * (size == 100), size))
    page = await windows.open(await office.key(), "/console/sessions/long-2")
    await expect(page.get_by_text("Text 9900.")).to_be_visible()
    calls, ticks = page.locator(".call"), page.locator(".tick")
    assert 0 < await calls.count() <= 25 * 20
    assert 0 < await ticks.count() <= 80
    await expect(ticks.last).to_contain_text("tool.finished")
    await expect(calls.nth(2)).to_contain_text("⟨U+202E⟩elif_eteled")
    await page.locator(".timeline").evaluate("(box) => { box.scrollTop = box.scrollHeight / 2; }")
    await expect(ticks.first).to_contain_text("tool.")
    await page.get_by_label("Time travel").get_by_role("slider").press("ArrowLeft")
    await expect(page.locator("section.past")).to_be_visible()
    await calls.last.locator("summary").click()
    await expect(calls.last).to_contain_text("Arguments")
    assert await page.evaluate("window.ran") is None
    assert await page.evaluate("document.querySelectorAll('*').length") < 20_000


async def scrolled(log: Locator, to: str, until: Locator) -> None:
    """Scroll again and again until a message is in the page."""
    for _ in range(100):
        await log.evaluate(f"(box) => {{ box.scrollTop = {to}; }}")
        await log.page.evaluate("new Promise((done) => setTimeout(done, 150))")
        if await until.count():
            return
    raise AssertionError(f"not reached by scrolling to {to}")
