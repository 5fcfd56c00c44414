"""examples/chat.html in a real browser, against a real server: said, streamed, approved, reloaded,
and the same after the server was killed, in a call too. A program of its own, run by
`scripts/browser`, since it needs a whole Chromium (PyQt6-WebEngine).

    python tests/browser/chat.py [PYTHON]     PYTHON: that of the server, if it is another
"""

from __future__ import annotations

import functools
import http.server
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
os.environ.setdefault("QTWEBENGINE_CHROMIUM_FLAGS", "--disable-gpu")
if hasattr(os, "geteuid") and os.geteuid() == 0:
    os.environ.setdefault("QTWEBENGINE_DISABLE_SANDBOX", "1")

from PyQt6.QtCore import QCoreApplication, QUrl  # type: ignore[import-not-found]
from PyQt6.QtWebEngineCore import QWebEnginePage  # type: ignore[import-not-found]
from PyQt6.QtWidgets import QApplication  # type: ignore[import-not-found]

ROOT = Path(__file__).resolve().parent.parent.parent
PATIENCE = 60.0  # seconds; only a hang takes so long
AGENT = """
import asyncio
from holdfast import Agent, Harness, LogConfig, tool
from holdfast.models.scripted import Say, ScriptedModel, Use

@tool(approval="ask")
async def refund(order: str) -> str:
    "Refund an order."
    return f"refunded {order}"

@tool
async def charge(order: str) -> str:
    "Charge for an order."
    open("begun", "w").close()
    await asyncio.sleep(3600)
    return f"charged {order}"

STORY = " ".join(f"word{n} \U0001f600" for n in range(40))
model = ScriptedModel.by_input({
    "Refund": [Say("Let me see.", calls=[Use("refund", order="42")]), "Refunded."],
    "Charge": [Say("Let me try.", calls=[Use("charge", order="42")]), "So it was charged."],
    "Story": Say(STORY, delay=0.05),
    ".": "Good day.",
})

def shop(*, store, tenant):
    agent = Agent("shop", instructions="Help.", tools=[refund, charge])
    quiet = LogConfig(level="silent")
    return Harness(agent, default_model=model, store=store, tenant=tenant, logging=quiet)
"""
SAY = """
document.getElementById("text").value = "%s";
document.getElementById("form").requestSubmit();
"""

LOGIN = """
document.getElementById("token").value = "%s";
document.getElementById("login").requestSubmit();
"""


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves the page, and says nothing."""

    def log_message(self, format: str, *args: Any) -> None:
        return None


class Page(QWebEnginePage):  # type: ignore[misc]
    """A page that is asked with JavaScript, and whose errors are kept."""

    def __init__(self) -> None:
        super().__init__()
        self.errors: list[str] = []

    def javaScriptConsoleMessage(self, level: Any, text: Any, line: int, source: Any) -> None:
        if level == QWebEnginePage.JavaScriptConsoleMessageLevel.ErrorMessageLevel:
            self.errors.append(f"{text} (line {line})")

    def ask(self, script: str) -> Any:
        """What a script comes to."""
        found: list[Any] = []
        self.runJavaScript(script, found.append)
        wait(lambda: found, "an answer of the page")
        return found[0]

    def until(self, script: str, what: str) -> None:
        """Wait until a script is true."""
        wait(lambda: self.ask(script), what)
        print(f"ok: {what}", flush=True)

    def text(self) -> str:
        return str(self.ask("document.getElementById('log')?.innerText"))


def wait(true: Any, what: str) -> None:
    until = time.monotonic() + PATIENCE
    while not true():
        if time.monotonic() > until:
            raise SystemExit(f"failed: waited in vain for {what}")
        QCoreApplication.processEvents()
        time.sleep(0.005)


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


class Server:
    """`holdfast serve` in a process, which may be killed and started again."""

    def __init__(self, python: str, folder: Path, origin: str) -> None:
        self.port, self._folder = free_port(), folder
        (folder / "counter.py").write_text(AGENT)
        self._cli, self._environ = [python, "-m", "holdfast.cli"], {**os.environ}
        self._environ["XDG_STATE_HOME"] = str(folder / "state")
        self._command = [
            *(*self._cli, "serve", "counter:shop", "--port", str(self.port)),
            *("--store", f"sqlite:{folder}/log.db", "--origin", origin),
        ]

    def start(self) -> None:
        self._process = subprocess.Popen(self._command, cwd=self._folder, env=self._environ)
        wait(self._ready, "the server")

    def _ready(self) -> bool:
        if self._process.poll() is not None:
            raise SystemExit("failed: the server ended")
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/v1/ready", timeout=5):
                return True
        except (urllib.error.URLError, OSError):
            return False

    def token(self) -> str:
        """The local token, as a person would ask for it."""
        asked = [*self._cli, "token", "--port", str(self.port)]
        return subprocess.check_output(asked, env=self._environ, text=True).strip()

    def charges(self) -> bool:
        """Whether the tool has begun that never ends by itself."""
        return (self._folder / "begun").exists()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


def check(page: Page, server: Server) -> None:
    """All that a person would try."""
    page.until("document.getElementById('login')?.hidden === false", "the page asks for a token")
    page.ask(LOGIN % "hl_wrong")
    page.until("document.getElementById('state')?.innerText?.includes('token')", "a wrong one")
    page.ask(LOGIN % server.token())
    page.until("document.getElementById('state')?.innerText === 'connected'", "the page connects")
    assert page.ask("document.getElementById('login').hidden")
    page.ask(SAY % "Hello")
    page.until("document.getElementById('log')?.innerText?.includes('Good day.')", "an answer")
    page.ask(SAY % "Story")
    page.until("!!document.querySelector('#log p.open')?.textContent", "text in flight")
    partial = page.ask("document.querySelector('#log p.open')?.textContent.length || 0")
    whole = "document.getElementById('log')?.innerText?.includes('word39')"
    page.until(whole, "the whole text")
    assert 0 < partial < len(page.text()), partial
    page.until("!document.querySelector('#log p.open')", "nothing in flight")
    page.ask(SAY % "Refund")
    page.until("!!document.querySelector('#asks button')", "a question of the agent's")
    server.kill()
    server.start()
    page.until("!!document.querySelector('#asks button')", "the question after a kill -9")
    page.until(
        "document.getElementById('state')?.innerText !== 'reconnecting …'", "connected again"
    )
    page.ask("document.querySelector('#asks button').click()")
    page.until("document.getElementById('log')?.innerText?.includes('Refunded.')", "the refund")
    page.until("!document.querySelector('#asks div')", "the question is gone")
    told_what_came_of_it(page, server)
    before = page.text()
    page.ask("window.old = true; location.reload(); true")
    page.until("window.old === undefined && document.readyState === 'complete'", "a reload")
    page.until("document.getElementById('log')?.innerText?.includes('Refunded.')", "all again")
    assert page.text() == before, f"{page.text()!r} is not {before!r}"
    assert before.count("Good day.") == before.count("Refunded.") == 1, before
    assert page.ask("document.querySelectorAll('#asks div').length") == 0
    assert not [error for error in page.errors if "Uncaught" in error], page.errors
    print("ok: the reloaded page shows the same", flush=True)


def told_what_came_of_it(page: Page, server: Server) -> None:
    """A call that a dead process may have made: a person says what came of it."""
    page.ask(SAY % "Charge")
    wait(server.charges, "a call")
    server.kill()
    server.start()
    page.until("document.querySelectorAll('#asks button').length === 3", "what came of the call?")
    page.ask(
        "window.prompt = () => 'charged'; document.querySelectorAll('#asks button')[2].click()"
    )
    said = "document.getElementById('log')?.innerText?.includes('So it was charged.')"
    page.until(said, "the run goes on with what a person said")
    page.until("!document.querySelector('#asks div')", "this question is gone too")


def main(python: str) -> None:
    app = QApplication([sys.argv[0], "--no-sandbox"])
    serve = functools.partial(Quiet, directory=str(ROOT / "examples"))
    pages = http.server.ThreadingHTTPServer(("127.0.0.1", 0), serve)
    threading.Thread(target=pages.serve_forever, daemon=True).start()
    origin = f"http://127.0.0.1:{pages.server_port}"
    with tempfile.TemporaryDirectory() as folder:
        server = Server(python, Path(folder), origin)
        server.start()
        page = Page()
        try:
            query = f"server=http://127.0.0.1:{server.port}&session=customer-42"
            page.load(QUrl(f"{origin}/chat.html?{query}"))
            check(page, server)
        finally:
            server.kill()
            pages.shutdown()
            del page
    app.quit()


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else sys.executable)
