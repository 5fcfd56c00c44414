"""The console is accessible, and safe from what sessions contain and from other pages."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import cache
from typing import Any

import pytest
from playwright.async_api import Page, expect

from holdfast.server.console.assets import policy
from tests.node import node, node_modules

from .browser import PACKAGES, Windows
from .server import Office, Server

pytestmark = pytest.mark.asyncio(loop_scope="session")
HOSTILE = (
    "<script>window.ran=1</script><img src=x onerror=window.ran=1>"
    "[x](javascript:window.ran=1)\u202e![y](https://tracker.example/p.png)"
)
LONG = "x" * 100_000
PAGES = ("", "/inbox", "/store", "/sessions/bad", "/sessions/bad?tab=operations")
EVALUATE = """
const {createRequire} = await import("node:module");
const require = createRequire(process.argv[1] + "/");
const {CspEvaluator} = require("csp_evaluator");
const {CspParser} = require("csp_evaluator/dist/parser.js");
const found = new CspEvaluator(new CspParser(process.argv[2]).csp).evaluate();
console.log(JSON.stringify(found));
"""
# Another origin's page tries to read, to decide and to follow with the cookie of the login.
ATTACK = """
async ([url, item]) => {
  const tried = {};
  const attempt = async (name, work) => {
    tried[name] = await work().then(
      (answer) => answer?.type === "opaque" ? "opaque" : "read", () => "failed");
  };
  await attempt("read", () => fetch(`${url}/v1/pending`, {credentials: "include"}));
  await attempt("header", () => fetch(`${url}/v1/sessions/bank/pending/${item}/approve`,
    {method: "POST", credentials: "include", headers: {"Holdfast-Console": "1"}}));
  await attempt("plain", () => fetch(`${url}/v1/sessions/bank/pending/${item}/approve`,
    {method: "POST", credentials: "include", mode: "no-cors"}));
  await attempt("stream", () => new Promise((done, fail) => {
    const source = new EventSource(`${url}/v1/changes`, {withCredentials: true});
    source.onopen = () => done({});
    source.onerror = () => { source.close(); fail(); };
  }));
  const frame = document.createElement("iframe");
  frame.src = `${url}/console/inbox`;
  await new Promise((done) => { frame.onload = done; document.body.append(frame); });
  let inner = "blocked";
  try { inner = frame.contentDocument ? "read" : "blocked"; } catch { /* another origin */ }
  return {...tried, frame: inner};
}
"""


@cache
def axe() -> str:
    return (node_modules(PACKAGES) / "axe-core" / "axe.min.js").read_text()


async def violations(page: Page) -> list[str]:
    await page.evaluate(await asyncio.to_thread(axe))
    found: Any = await page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [
        f"{one['id']}: {node['html'][:160]} {node['failureSummary']}"
        for one in found["violations"]
        for node in one["nodes"]
    ]


async def fill(office: Office) -> None:
    """Begin sessions of somebody with a hostile name, with hostile titles, labels, messages,
    arguments, results and metadata."""
    client = await office.client(f"{HOSTILE[:60]}\u202e{'W' * 130}")
    bad = await client.get_or_create(
        "bad", title=HOSTILE, labels=[HOSTILE], metadata={"note": HOSTILE}
    )
    await bad.send(f"Echo {HOSTILE}{LONG}")
    await bad.send(f"Refund {HOSTILE}")
    other = await client.get_or_create("other", title="Order 42")
    await other.send("Ask")


async def test_hostile_content_runs_nowhere(windows: Windows, office: Office) -> None:
    await fill(office)
    page = await windows.open(await office.key())
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    for path in PAGES:
        await page.goto(f"/console{path}")
        await expect(page.locator("main h1")).to_be_visible()
        await expect(page.locator(".loading")).to_have_count(0)
        assert await page.evaluate("window.ran") is None
        assert await page.locator("main script, main iframe, main img[src=x]").count() == 0
        for width in (390, 1280):
            await page.set_viewport_size({"width": width, "height": 800})
            fits = "document.documentElement.scrollWidth <= document.documentElement.clientWidth"
            assert await page.evaluate(fits), (path, width)
        shown = await page.locator("body").inner_text()
        assert ("\u202e" in shown, "⟨U+202E⟩" in shown) == (False, path != "/store"), path
    assert not [url for url in asked if "tracker" in url]


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_pages_are_accessible(windows: Windows, office: Office, scheme: Any) -> None:
    await fill(office)
    page = await windows.open(await office.key(), color_scheme=scheme)
    found = {}
    for path in PAGES:
        await page.goto(f"/console{path}")
        await expect(page.locator("main h1")).to_be_visible()
        await expect(page.locator(".loading")).to_have_count(0)
        found[path] = await violations(page)
    await page.goto("/console/inbox")
    await expect(page.locator(".chosen .pending")).to_be_visible()
    await page.keyboard.press("?")
    found["keys"] = await violations(page)
    assert not any(found.values()), json.dumps(found, indent=1)


async def test_the_login_is_accessible(windows: Windows) -> None:
    windows.expect("status of 401")
    page = await windows.open()
    await expect(page.get_by_role("heading", name="Log in")).to_be_visible()
    assert not await violations(page)


async def test_the_policy_has_no_weakness_that_is_known() -> None:
    modules = await asyncio.to_thread(node_modules, PACKAGES)
    words = [str(node()), "--input-type=module", "-e", EVALUATE, str(modules), policy("n" * 24)]
    said = await asyncio.to_thread(subprocess.check_output, words)
    assert json.loads(said) == []


@asynccontextmanager
async def elsewhere() -> AsyncGenerator[str, None]:
    """A page of another origin: the same host, another port."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        body = b"<!doctype html><title>elsewhere</title><body></body>"
        head = f"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: {len(body)}\r\n"
        writer.write(f"{head}connection: close\r\n\r\n".encode() + body)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"


async def test_another_origin_can_neither_read_nor_decide(
    windows: Windows, office: Office, server: Server
) -> None:
    session = await (await office.client()).get_or_create("bank")
    await session.send("Refund 42")
    (item,) = await session.pending()
    page = await windows.open(await office.key("ann"), "/console/inbox")
    await expect(page.locator(".chosen .pending")).to_be_visible()
    windows.expect(".")  # the browser reports everything that it blocks
    other = await page.context.new_page()
    async with elsewhere() as url:
        await other.goto(url)
        tried = await other.evaluate(ATTACK, [server.url, item.id])
    assert tried == {
        **{"read": "failed", "header": "failed", "plain": "opaque", "stream": "failed"},
        "frame": "blocked",
    }
    assert (await session.status()).pending == 1
    (call,) = await session.audit()
    assert not call.decisions
