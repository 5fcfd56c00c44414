"""What is no HTTP, sent to `holdfast serve`."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest
from uvicorn.protocols.http import auto
from uvicorn.protocols.http.h11_impl import H11Protocol

from holdfast import wire
from holdfast.errors import InvalidValue
from holdfast.server.http.protocol import Protocol

from .test_serve import served


def sent(port: int, request: bytes) -> bytes:
    """All that is answered to these bytes, until the connection is closed."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as line:
        line.sendall(request)
        found = b""
        while piece := line.recv(65_536):
            found += piece
    return found


@pytest.mark.parametrize("workers", ["1", "2"])
def test_what_is_no_http_is_refused_in_the_one_shape(tmp_path: Path, workers: str) -> None:
    wrong = [
        b"nonsense\r\n\r\n",
        b"GET /v1/health HTTP/1.1\r\nno header\r\n\r\n",
        b"GET /v1/health HTTP/1.1\r\nHost: x\r\nA: " + b"x" * 100_000 + b"\r\n",
        b"GET /v1/he alth HTTP/1.1\r\nHost: x\r\n\r\n",
    ]
    with served(tmp_path, "--workers", workers) as server:
        for request in wrong:
            head, _, body = sent(server.port, request).partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 400 "), request[:40]
            assert b"content-type: application/json" in head
            error = json.loads(body)["error"]
            assert {*error} == {"code", "message", "fields", "retryable", "docs"}
            assert isinstance(wire.error_of(body, 400), InvalidValue)
        health = sent(
            server.port, b"GET /v1/health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        )
        assert health.startswith(b"HTTP/1.1 200 ")


def test_uvicorn_still_has_what_is_overridden() -> None:
    """If it had not, what is no HTTP would be refused in its own words."""
    assert issubclass(Protocol, auto.AutoHTTPProtocol)
    assert callable(H11Protocol.send_400_response)
