"""Repositories behind HTTP, as git itself serves them, and repositories that are made to hurt."""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

IDENTITY = {
    "GIT_AUTHOR_NAME": "a",
    "GIT_AUTHOR_EMAIL": "a@b",
    "GIT_COMMITTER_NAME": "a",
    "GIT_COMMITTER_EMAIL": "a@b",
    "GIT_CONFIG_NOSYSTEM": "1",
}
MANIFEST = b'name = "Support"\ninstructions = "Help."\n'


def git(folder: Path, *words: str, stdin: bytes = b"") -> str:
    done = subprocess.run(
        ["git", "-C", str(folder), *words],
        input=stdin,
        check=True,
        capture_output=True,
        env={**os.environ, **IDENTITY, "HOME": os.devnull},
    )
    return done.stdout.decode().strip()


def repository(folder: Path) -> Path:
    """A bare repository with an agent in it."""
    folder.mkdir(parents=True)
    git(folder, "init", "-q", "--bare", "-b", "main")
    commit(folder, {})
    return folder


def commit(folder: Path, entries: dict[str, str]) -> str:
    """Put a commit on the branch `main`, whose tree has these entries beside a description; each is
    a mode, a kind and an id, such as `100644 blob 1234…`."""
    about = f"100644 blob {blob(folder, MANIFEST)}"
    made = git(folder, "commit-tree", tree(folder, {"agent.toml": about, **entries}), "-m", "one")
    git(folder, "update-ref", "refs/heads/main", made)
    return made


def blob(folder: Path, data: bytes) -> str:
    return git(folder, "hash-object", "-w", "--stdin", stdin=data)


def tree(folder: Path, entries: dict[str, str]) -> str:
    lines = "".join(f"{about}\t{name}\n" for name, about in sorted(entries.items()))
    return git(folder, "mktree", stdin=lines.encode())


def inflating(folder: Path, size: int) -> Path:
    """A small repository with one file that is so large."""
    repository(folder)
    command = f"head -c {size} /dev/zero | git hash-object -w --stdin"
    done = subprocess.run(
        ["sh", "-c", command], cwd=folder, check=True, capture_output=True, text=True
    )
    commit(folder, {"zeros.bin": f"100644 blob {done.stdout.strip()}"})
    return folder


def branching(folder: Path, levels: int, width: int) -> Path:
    """A small repository in which each folder has so many times the same folder."""
    repository(folder)
    known = tree(folder, {})
    for _ in range(levels):
        known = tree(folder, {f"d{n}": f"040000 tree {known}" for n in range(width)})
    commit(folder, {"d": f"040000 tree {known}"})
    return folder


class Served:
    """Where the repositories are, and which paths were asked for."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.asked: list[str] = []


@contextlib.contextmanager
def served(root: Path, redirects: dict[str, str] | None = None) -> Iterator[Served]:
    """The repositories below a folder, behind HTTP. A path that begins like one of `redirects` is
    answered by another."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            here.asked.append(self.path)
            for begins, to in (redirects or {}).items():
                if self.path.startswith(begins):
                    self.send_response(302)
                    self.send_header("location", to + self.path.removeprefix(begins))
                    self.end_headers()
                    return
            self._answer()

        do_POST = do_GET

        def _answer(self) -> None:
            path, _, query = self.path.partition("?")
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            environ = {
                "PATH": os.environ["PATH"],
                "GIT_PROJECT_ROOT": str(root),
                "GIT_HTTP_EXPORT_ALL": "1",
                "REQUEST_METHOD": self.command,
                "PATH_INFO": path,
                "QUERY_STRING": query,
                "CONTENT_TYPE": self.headers.get("content-type", ""),
                "HTTP_CONTENT_ENCODING": self.headers.get("content-encoding", ""),
                "GIT_PROTOCOL": self.headers.get("git-protocol", ""),
                "REMOTE_ADDR": "127.0.0.1",
                "GIT_CONFIG_NOSYSTEM": "1",
            }
            done = subprocess.run(
                ["git", "http-backend"], input=body, env=environ, capture_output=True, check=False
            )
            head, _, data = done.stdout.partition(b"\r\n\r\n")
            lines = [line.split(": ", 1) for line in head.decode().split("\r\n") if line]
            headers = {name.lower(): value for name, value in lines}
            self.send_response(int(headers.pop("status", "200").split()[0]))
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    here = Served(f"http://127.0.0.1:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield here
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
