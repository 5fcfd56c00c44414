"""`holdfast serve` as a process whose memory can be read, and readers that do not read: connected,
caught up, and silent from then on."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import select
import socket
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import httpx

from tests import forks
from tests.servers.process import free_port

PATIENCE = 120.0  # seconds; only a hang takes so long
ROOT = Path(__file__).parents[3]
SMALL = 4_096  # bytes of a reader's socket buffer
ESTABLISHED = "01"
LATER = (b"HTTP/1.1 429", b"HTTP/1.1 503")
PROGRAM = """
from holdfast import Agent, Harness, LogConfig
from holdfast.models.scripted import ScriptedModel

def clerk(**settings):
    agent = Agent("clerk", instructions="Obey.")
    model = ScriptedModel.by_input({".": "Good day."})
    return Harness(agent, default_model=model, logging=LogConfig(level="silent"), **settings)
"""


def until(true: Callable[[], Any], what: str) -> None:
    """Wait until something is so."""
    end = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < end, what
        time.sleep(0.02)


class Server:
    """A server on a store in a folder, with these limits."""

    def __init__(self, folder: Path, store: str = "sqlite:x.db", **limits: float) -> None:
        (folder / "clerk.py").write_text(PROGRAM)
        lines = ["[agents]", 'clerk = "clerk:clerk"', "[auth]", 'kind = "none"']
        kind = {"postgresql": "postgres"}.get(store.partition(":")[0], store.partition(":")[0])
        lines += ["[stores]", f"{kind} = {json.dumps(store)}"]
        lines += ["[server]", "grace = 1.0", "[limits]", "rate = 10000", "burst = 10000"]
        lines += [f"{name} = {value}" for name, value in limits.items()]
        (folder / "server.toml").write_text("\n".join(lines))
        self._folder, self.port = folder, free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.process: subprocess.Popen[bytes] | None = None
        self.base = 0.0  # its memory before it did anything

    def __enter__(self) -> Server:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.kill()

    def start(self) -> None:
        """Start it, and return when it is ready."""
        words = ["serve", "--config", "server.toml", "--port", str(self.port)]
        self.process = process = forks.popen(
            *("-m", "holdfast.cli", *words),
            cwd=self._folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

        def ready() -> bool:
            assert process.poll() is None, "the server ended"
            with contextlib.suppress(httpx.TransportError):
                return httpx.get(f"{self.url}/v1/ready").status_code == 200
            return False

        until(ready, "the server did not come up")
        self.base = self.memory()

    def kill(self) -> None:
        """End it as `kill -9` does."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait(PATIENCE)

    def memory(self, what: str = "VmRSS") -> float:
        """The resident memory in MB, now or (`VmHWM`) at its highest."""
        assert self.process is not None
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith(what)) / 1024

    def connections(self) -> int:
        """How many connections it has open."""
        rows = [row.split() for row in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        here = f":{self.port:04X}"
        return sum(row[1].endswith(here) and row[3] == ESTABLISHED for row in rows)

    def ask(self, method: str, path: str, **more: Any) -> httpx.Response:
        return httpx.request(method, f"{self.url}/v1{path}", timeout=PATIENCE, **more)

    def send(self, session: str, text: str) -> None:
        """Send a message, and return when it is answered."""
        path = f"/sessions/{session}/messages?wait=true"
        answer = self.ask("POST", path, json={"content": text})
        assert answer.status_code == 200, answer.text[:500]

    def log(self, session: str) -> list[tuple[int, str]]:
        """The events of a session: number and hash."""
        found: list[tuple[int, str]] = []
        while page := self._page(session, found[-1][0] if found else 0):
            found += [told(event) for event in page]
        return found

    def _page(self, session: str, after: int) -> list[dict[str, Any]]:
        answers: list[httpx.Response] = []

        def answered() -> bool:  # where there is no room for it, readers are cut until there is
            path = f"/sessions/{session}/events?after={after}&limit=1000"
            answers.append(self.ask("GET", path))
            return answers[-1].status_code != 429

        until(answered, "there is no room for a page")
        found: list[dict[str, Any]] = answers[-1].json()["items"]
        return found


class Reader:
    """A reader of a stream over a raw socket, whose buffer is small. What it was given is in
    `events`: number and hash of each, in the order in which they came."""

    def __init__(self, server: Server, session: str, *, small: bool = True) -> None:
        self._server, self._session, self._small = server, session, small
        self.events: list[tuple[int, str]] = []
        self.cursor: str | None = None
        self.caught = False
        self.pause = 0.0  # seconds after each piece that is read
        self.connects = 0
        self._forget()
        self.socket: socket.socket | None = None

    def connect(self) -> None:
        """Begin, or go on behind the last event that came whole."""
        self.close()
        headers = {"Accept": "text/event-stream"}
        if self.cursor is not None:
            headers["Last-Event-ID"] = self.cursor
        path = f"/v1/sessions/{self._session}/events"
        self.socket = asked(self._server.port, path, headers, small=self._small)
        self.connects += 1
        self._forget()

    def _forget(self) -> None:
        self._raw, self._text, self._seen, self._begun = bytearray(), bytearray(), 0, False

    def read(self, enough: Callable[[], bool]) -> bool:
        """Read until it is enough; False where the connection ended before."""
        while not enough():
            if not self._read_piece():
                return False
        return True

    def _read_piece(self) -> bool:
        assert self.socket is not None
        try:
            piece = self.socket.recv(1 << 16)
            self._raw += piece
            self._parse()
        except ConnectionError:
            return False
        time.sleep(self.pause)
        return bool(piece)

    def catch_up(self) -> None:
        """Read all that was; then say nothing and take nothing."""
        self.caught = False
        assert self.read(lambda: self.caught)

    def read_to(self, seq: int) -> None:
        """Read until this event has come, over as many connections as it takes."""
        end = time.monotonic() + PATIENCE
        while not (self.events and self.events[-1][0] >= seq):
            assert time.monotonic() < end, f"event {seq} did not come"
            if self.socket is None:
                with contextlib.suppress(ConnectionError):
                    self.connect()
                time.sleep(0.02)
            if self.socket is not None and not self.read(
                lambda: bool(self.events) and self.events[-1][0] >= seq
            ):
                self.close()

    def read_some(self) -> None:
        """Read some more, if there is more; make a connection where there is none."""
        if self.socket is None:
            with contextlib.suppress(ConnectionError):
                self.connect()
            time.sleep(0.02)
        elif select.select([self.socket], [], [], 0.1)[0] and not self._read_piece():
            self.close()

    @property
    def waiting(self) -> int:
        """Bytes that arrived and were not read."""
        assert self.socket is not None
        (count,) = struct.unpack("i", fcntl.ioctl(self.socket, termios.FIONREAD, b"\0" * 4))
        return int(count)

    @property
    def cut(self) -> bool:
        """Whether the server has ended the connection; nothing is read for that."""
        assert self.socket is not None
        poll = select.poll()
        poll.register(self.socket, select.POLLRDHUP)
        return bool(poll.poll(0))

    def close(self) -> None:
        if self.socket is not None:
            self.socket.close()
        self.socket = None

    def _parse(self) -> None:
        """Take what is whole out of what came: the chunks of HTTP, then the blocks of the stream.
        What is cut short stays there, and is lost with the connection."""
        if not self._begun:
            head, found, rest = self._raw.partition(b"\r\n\r\n")
            if not found:
                return
            if head[:12] in LATER:
                raise ConnectionError("not now")
            assert head.startswith(b"HTTP/1.1 200 "), bytes(head)
            self._begun, self._raw = True, rest
        while (place := self._raw.find(b"\r\n")) >= 0:
            end = place + 2 + int(self._raw[:place], 16)
            if len(self._raw) < end + 2:
                break
            self._text += self._raw[place + 2 : end]
            del self._raw[: end + 2]
        while (place := self._text.find(b"\n\n", self._seen)) >= 0:
            block = bytes(self._text[:place])
            del self._text[: place + 2]
            self._seen = 0
            self._take(
                dict(line.split(b": ", 1) for line in block.split(b"\n") if line[:1] != b":")
            )
        self._seen = max(0, len(self._text) - 1)

    def _take(self, fields: dict[bytes, bytes]) -> None:
        self.caught = self.caught or fields.get(b"event") == b"caught_up"
        if fields.get(b"event") == b"event":
            self.cursor = fields[b"id"].decode()
            self.events.append(told(json.loads(fields[b"data"])))


def told(event: dict[str, Any]) -> tuple[int, str]:
    """The number of an event, and a hash of all of it."""
    text = json.dumps(event, sort_keys=True).encode()
    return event["seq"], hashlib.sha256(text).hexdigest()


def asked(
    port: int, path: str, headers: Mapping[str, str] = {}, *, small: bool = True
) -> socket.socket:
    """A connection over which something was asked for, and nothing is read."""
    line = socket.socket()
    line.settimeout(PATIENCE)
    if small:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL)
    line.connect(("127.0.0.1", port))
    told = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    line.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{told}\r\n".encode())
    return line
