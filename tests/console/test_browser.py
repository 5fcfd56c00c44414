"""What the tests of the console stand on: a browser, a server that may be killed, and errors of
pages that fail a test."""

from __future__ import annotations

import pytest
from playwright.async_api import expect

from .browser import Windows
from .server import Office, Server

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_a_login_is_enough_for_the_api(windows: Windows, office: Office) -> None:
    page = await windows.open(await office.key("ann"))
    who = await page.evaluate("fetch('/v1/me').then((answer) => answer.json())")
    assert (who["principal"], who["tenant"]) == ("ann", office.tenant)


@pytest.mark.parametrize(
    ("script", "problem"),
    [
        ("setTimeout(() => { throw new Error('broken') })", "uncaught: .*broken"),
        ("console.error('a message')", "a message"),
        (
            "document.body.append(Object.assign(new Image(), {src: 'http://127.0.0.1:1/x.png'}))",
            "policy violation: img-src",
        ),
    ],
)
async def test_errors_of_a_page_fail_a_test(windows: Windows, script: str, problem: str) -> None:
    page = await windows.open()
    await page.evaluate(f"() => {{ {script} }}")
    await page.evaluate("new Promise((done) => setTimeout(done))")
    with pytest.raises(AssertionError, match=problem):
        windows.check()
    windows.expect(".")


async def test_sessions_outlive_a_killed_server(
    server: Server, windows: Windows, office: Office
) -> None:
    page = await windows.open(await office.key())
    client = await office.client()
    session = await client.get_or_create("customer-42")
    result = await session.send("Refund 42")
    assert result.status == "waiting"
    windows.expect("net::ERR_")  # the page tries to reach the server meanwhile
    await server.kill()
    await server.start()
    await page.reload()
    inbox = "fetch('/v1/pending').then((answer) => answer.json())"
    (item,) = (await page.evaluate(inbox))["items"]
    assert item["session"] == "customer-42"
    await expect(page).to_have_title("Sessions · Holdfast")
