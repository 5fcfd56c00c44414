"""The pages of `examples/front_ends`, with the clients that they install, in a real browser: said,
streamed, approved, loaded again, and the same after the server was killed."""

from __future__ import annotations

import asyncio
import functools
import http.server
import shutil
import threading
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Dialog, Page, expect

from tests.console.browser import PATIENCE, Windows, launched
from tests.console.desk import STORY
from tests.console.server import CONFIG, Office, Server
from tests.node import node_modules

pytestmark = pytest.mark.asyncio(loop_scope="module")
EXAMPLE = Path(__file__).parents[2] / "examples/front_ends"
PAGES = ("react", "ag-ui")
expect.set_options(timeout=PATIENCE)

each = pytest.mark.parametrize("name", PAGES)


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves files, and says nothing."""

    def log_message(self, format: str, *args: object) -> None:
        return None


@pytest.fixture(scope="module")
def origin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where the folder of the example is served as static files."""
    folder = tmp_path_factory.mktemp("pages")
    for name in PAGES:
        shutil.copy(EXAMPLE / f"{name}.html", folder)
    (folder / "node_modules").symlink_to(node_modules(EXAMPLE))
    handler = functools.partial(Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as files:
        thread = threading.Thread(target=files.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{files.server_port}"
        files.shutdown()
        thread.join()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(
    tmp_path_factory: pytest.TempPathFactory, origin: str
) -> AsyncGenerator[Server, None]:
    config = f'[server]\norigins = ["{origin}"]\n{CONFIG}'
    one = await asyncio.to_thread(Server, tmp_path_factory.mktemp("served"), config)
    await one.start()
    yield one
    await one.kill()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def windows(origin: str) -> AsyncGenerator[Windows, None]:
    async with launched() as browser:
        one = Windows(browser, origin)
        yield one
        await one.aclose()
        one.check()


async def opened(windows: Windows, office: Office, name: str) -> Page:
    page = await (await windows.context()).new_page()
    token = await office.key()

    async def give(dialog: Dialog) -> None:
        await dialog.accept(token)

    page.on("dialog", give)
    windows.expect("404", "ERR_", "network error")  # a new session, and a killed server
    await page.goto(f"/{name}.html?server={office.server.url}&session=page")
    return page


async def says(page: Page, text: str) -> None:
    await expect(page.locator("#status")).to_have_text("ready")
    await page.get_by_label("Message").fill(text)
    await page.get_by_role("button", name="Send").click()


@each
async def test_a_person_talks_and_approves(windows: Windows, office: Office, name: str) -> None:
    page = await opened(windows, office, name)
    log = page.locator("#log")
    await says(page, "Hello")
    await expect(log).to_contain_text("Good day.")
    await says(page, "Refund 42")
    await page.get_by_role("button", name="Approve").click()
    await expect(log).to_contain_text("The refund is on its way.")
    await expect(log).to_contain_text("refunded 1999 cents of order 42")
    await expect(page.get_by_role("button", name="Approve")).to_have_count(0)
    await page.reload()
    await expect(log).to_contain_text("The refund is on its way.")
    assert (await log.inner_text()).count("Good day.") == 1


@each
async def test_a_page_shows_the_whole_answer_after_the_server_was_killed(
    windows: Windows, office: Office, name: str
) -> None:
    page = await opened(windows, office, name)
    log = page.locator("#log")
    await says(page, "Story")
    await expect(log).to_contain_text("word5")
    await office.server.kill()
    await expect(page.locator("#status")).to_contain_text("rror")
    await office.server.start()
    await page.reload()
    await expect(log).to_contain_text(STORY)
    assert (await log.inner_text()).count("word7 ") == 1
    await says(page, "Refund 42")
    await expect(page.get_by_role("button", name="Approve")).to_be_visible()
    await office.server.kill()
    await office.server.start()
    await page.reload()
    await page.get_by_role("button", name="Approve").click()
    await expect(log).to_contain_text("The refund is on its way.")
