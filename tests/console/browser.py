"""A real Chromium, from a package of npm, driven by Playwright: nothing needs to be installed. It
runs on Linux, on x86-64.

    async with launched() as browser: ...
    windows = Windows(browser, url)
    page = await windows.open(key)      a page of the console, logged in with this API key
    windows.check()                     fails if a page had an error
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any

from playwright.async_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Page,
    WebError,
    async_playwright,
)

from tests.node import node, node_modules

PACKAGES = Path(__file__).parent / "packages"
PATIENCE = 60_000  # ms; only a hang takes so long
FLAGS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update"),
    *("--font-render-hinting=none", "--force-color-profile=srgb"),
)
# Unpacks files that are compressed with Brotli, which Python cannot do by itself.
UNPACK = """
import {createReadStream, createWriteStream} from "node:fs";
import {pipeline} from "node:stream/promises";
import {createBrotliDecompress} from "node:zlib";
const [from, to, ...names] = process.argv.slice(1);
for (const name of names)
  await pipeline(createReadStream(`${from}/${name}.br`), createBrotliDecompress(),
                 createWriteStream(`${to}/${name}`, {mode: 0o755}));
"""
# The same fonts on every machine, so that screenshots are the same.
FONTS = """<?xml version="1.0"?><!DOCTYPE fontconfig SYSTEM "fonts.dtd"><fontconfig>
<dir>{fonts}</dir><dir>{dejavu}</dir><cachedir>{folder}/cache</cachedir>
<alias><family>system-ui</family><prefer><family>Open Sans</family></prefer></alias>
<alias><family>sans-serif</family><prefer><family>Open Sans</family></prefer></alias>
<alias><family>monospace</family><prefer><family>DejaVu Sans Mono</family></prefer></alias>
</fontconfig>"""
# Makes a violation of the page's content security policy an error.
REPORT = """
addEventListener("securitypolicyviolation", (found) =>
  console.error(`policy violation: ${found.violatedDirective} ${found.blockedURI}`));
"""


@cache
def chromium() -> Path:
    """Return the folder with the program `chromium`, its libraries and its fonts."""
    modules = node_modules(PACKAGES)
    unpacked = modules.parent / "chromium"
    with (modules.parent / "chromium.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not unpacked.exists():
            _unpack(modules, unpacked)
    return unpacked


def _unpack(modules: Path, to: Path) -> None:
    with tempfile.TemporaryDirectory(dir=to.parent) as around:
        made = Path(around, "chromium")
        made.mkdir()
        tars = ("al2023.tar", "fonts.tar")
        packed = modules / "@sparticuz" / "chromium" / "bin"
        words = ["--input-type=module", "-e", UNPACK, str(packed), str(made), "chromium", *tars]
        subprocess.run([node(), *words], check=True, timeout=240)
        for name in tars:
            with tarfile.open(made / name) as tar:
                tar.extractall(made, filter="data")
        dejavu = modules / "dejavu-fonts-ttf" / "ttf"
        fonts = FONTS.format(fonts=to / "fonts", dejavu=dejavu, folder=to)
        (made / "fonts.conf").write_text(fonts)
        made.rename(to)


@asynccontextmanager
async def launched() -> AsyncGenerator[Browser, None]:
    """A headless browser."""
    folder = chromium()
    profile = tempfile.mkdtemp(prefix="chromium-")
    environment: dict[str, str | float | bool] = {
        **{name: value for name, value in os.environ.items() if "proxy" not in name.lower()},
        "LD_LIBRARY_PATH": str(folder / "lib"),
        "FONTCONFIG_FILE": str(folder / "fonts.conf"),
        "HOME": profile,
    }
    try:
        async with async_playwright() as playwright:
            browser = await playwright.chromium.launch(
                executable_path=folder / "chromium", args=FLAGS, env=environment
            )
            yield browser
            await browser.close()
    finally:
        shutil.rmtree(profile, ignore_errors=True)


class Windows:
    """The windows of people who use one server, each with cookies of its own, and every error that
    a page in them had."""

    def __init__(self, browser: Browser, url: str) -> None:
        self.url, self._browser = url, browser
        self._contexts: list[BrowserContext] = []
        self._problems: list[str] = []
        self._expected: list[str] = []

    async def context(self, key: str | None = None, **options: Any) -> BrowserContext:
        """Return a new profile of the browser, logged in with this API key."""
        context = await self._browser.new_context(base_url=self.url, **options)
        self._contexts.append(context)
        context.set_default_timeout(PATIENCE)
        await context.add_init_script(REPORT)
        context.on("console", self._said)
        context.on("weberror", self._uncaught)
        if key is not None:
            ours = {"sec-fetch-site": "same-origin", "holdfast-console": "1"}
            answer = await context.request.post(
                "/console/login", headers={"authorization": f"Bearer {key}", **ours}
            )
            assert answer.status == 204, await answer.text()
        return context

    async def open(self, key: str | None = None, path: str = "/console", **options: Any) -> Page:
        """Return a page of the console in a window of its own, logged in with this API key."""
        page = await (await self.context(key, **options)).new_page()
        await page.goto(path)
        return page

    def expect(self, *patterns: str) -> None:
        """Errors that match one of these regular expressions are no failure."""
        self._expected.extend(patterns)

    def check(self) -> None:
        """Fail if a page had an error that is not expected."""
        left = [
            problem
            for problem in self._problems
            if not any(re.search(pattern, problem) for pattern in self._expected)
        ]
        assert not left, "\n".join(left)

    async def aclose(self) -> None:
        for context in self._contexts:
            await context.close()

    def _said(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self._problems.append(message.text)

    def _uncaught(self, error: WebError) -> None:
        self._problems.append(f"uncaught: {error.error}")
