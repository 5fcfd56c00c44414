"""Requests whose end can be read in two ways, sent over raw sockets to `holdfast serve`: what
follows the refused part is never taken for a request, and the connection is closed."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator

import httpx
import pytest

from holdfast.server import ServerLimits

from .scene import Tokens, serving, settings
from .test_hostile import raw
from .test_refusing import sent
from .test_serve import Served, served

HOST = b"Host: 127.0.0.1\r\n"
JSON = b"Content-Type: application/json\r\n"
POST = b"POST /v1/sessions HTTP/1.1\r\n" + HOST + JSON
SMUGGLED = b"PUT /v1/sessions/smuggled HTTP/1.1\r\n" + HOST + b"Content-Length: 0\r\n\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n"
REFUSED = {
    "CL.TE": POST + b"Content-Length: 6\r\n" + CHUNKED + b"\r\n0\r\n\r\n" + SMUGGLED,
    "TE.CL": POST + CHUNKED + b"Content-Length: 4\r\n\r\n0\r\n\r\n" + SMUGGLED,
    "CL.TE of a GET": b"GET /v1/health HTTP/1.1\r\n"
    + HOST
    + b"Content-Length: 6\r\n"
    + CHUNKED
    + b"\r\n0\r\n\r\n"
    + SMUGGLED,
    "CL.TE of no route": b"GET /v1/nowhere HTTP/1.1\r\n"
    + HOST
    + b"Content-Length: 6\r\n"
    + CHUNKED
    + b"\r\n0\r\n\r\n"
    + SMUGGLED,
    "two lengths": POST + b"Content-Length: 2\r\nContent-Length: 50\r\n\r\n{}" + SMUGGLED,
    "two lengths in one": POST + b"Content-Length: 2, 50\r\n\r\n{}" + SMUGGLED,
    "a length with a sign": POST + b"Content-Length: +2\r\n\r\n{}" + SMUGGLED,
    "a length that is none": POST + b"Content-Length: 0x2\r\n\r\n{}" + SMUGGLED,
    "a negative length": POST + b"Content-Length: -1\r\n\r\n{}" + SMUGGLED,
    "chunked twice": POST + CHUNKED + CHUNKED + b"\r\n0\r\n\r\n" + SMUGGLED,
    "an unknown coding": POST + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n" + SMUGGLED,
    "chunked, then another": POST
    + b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n"
    + SMUGGLED,
    "chunked of HTTP/1.0": POST.replace(b"1.1", b"1.0") + CHUNKED + b"\r\n0\r\n\r\n" + SMUGGLED,
    "a blank before the colon": POST + b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n" + SMUGGLED,
    "a folded header": POST + b"Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n" + SMUGGLED,
    "another folded header": POST + b"X: y\r\n\tz\r\nContent-Length: 2\r\n\r\n{}" + SMUGGLED,
    "a bare LF": POST + b"Content-Length: 2\nX: y\r\n\r\n{}" + SMUGGLED,
    "bare LFs": (POST + b"Content-Length: 2\r\n\r\n").replace(b"\r\n", b"\n") + b"{}" + SMUGGLED,
    "a bare CR": POST + b"X: y\rContent-Length: 2\r\n\r\n" + SMUGGLED,
    "a chunk of no size": POST + CHUNKED + b"\r\nx\r\n{}\r\n0\r\n\r\n" + SMUGGLED,
    "a chunk of a negative size": POST + CHUNKED + b"\r\n-2\r\n{}\r\n0\r\n\r\n" + SMUGGLED,
    "a chunk in 0x": POST + CHUNKED + b"\r\n0x2\r\n{}\r\n0\r\n\r\n" + SMUGGLED,
    "a chunk that is longer": POST + CHUNKED + b"\r\n2\r\n{} \r\n0\r\n\r\n" + SMUGGLED,
    "a chunk that ends with LF": POST + CHUNKED + b"\r\n2\n{}\n0\n\n" + SMUGGLED,
    "an end with a bare LF": POST + CHUNKED + b"\r\n2\r\n{}\r\n0\r\n\n" + SMUGGLED,
    "a trailer with a bare LF": POST + CHUNKED + b"\r\n2\r\n{}\r\n0\r\nX: y\n\n" + SMUGGLED,
    "NUL in a header": POST + b"X: a\0b\r\nContent-Length: 2\r\n\r\n{}" + SMUGGLED,
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("framing")) as one:
        yield one


def statuses(answer: bytes) -> list[bytes]:
    return re.findall(rb"HTTP/1\.1 (\d{3}) ", answer)


def sessions(server: Served) -> set[str]:
    listed = httpx.get(f"{server.url}/v1/sessions").json()["items"]
    return {row["session"] for row in listed}


@pytest.mark.parametrize("request_", REFUSED.values(), ids=REFUSED)
def test_request_that_ends_in_two_places_is_refused_and_nothing_behind_it_is_run(
    server: Served, request_: bytes
) -> None:
    answer = sent(server.port, request_)  # and the server closes the connection
    assert statuses(answer) == [b"400"]
    assert b"connection: close" in answer.lower()
    assert b'{"error":{"code":"invalid_value"' in answer
    assert "smuggled" not in sessions(server)


def test_requests_in_a_row_are_all_answered(server: Served) -> None:
    """What is refused is refused for what it is, not for coming over one connection."""
    chunked = POST + CHUNKED + b'\r\n8\r\n{"id":"a\r\n2;x=y\r\n"}\r\n0\r\nX: y\r\n\r\n'
    plain = POST + b"Content-Length: 10\r\n\r\n" + b'{"id":"b"}'
    last = b"GET /v1/health HTTP/1.1\r\n" + HOST + b"Connection: close\r\n\r\n"
    assert statuses(sent(server.port, chunked + plain + last)) == [b"201", b"201", b"200"]
    assert {"a", "b"} <= sessions(server)


UNREAD = {
    "no key": (401, b"POST /v1/sessions HTTP/1.1\r\n"),
    "a key that may not": (403, b"POST /v1/bundles HTTP/1.1\r\nAuthorization: Bearer a@b\r\n"),
    "too large": (413, b"POST /v1/sessions HTTP/1.1\r\nAuthorization: Bearer a@b\r\n"),
    "of another type": (
        415,
        b"POST /v1/sessions HTTP/1.1\r\nContent-Encoding: gzip\r\nAuthorization: Bearer a@b\r\n",
    ),
    "no route": (404, b"POST /v1/nowhere HTTP/1.1\r\n"),
    "no method": (405, b"POST /v1/health HTTP/1.1\r\n"),
    "no parameter": (400, b"POST /v1/sessions?x=y HTTP/1.1\r\nAuthorization: Bearer a@b\r\n"),
}


@pytest.mark.parametrize("framing", ["length", "chunked"])
@pytest.mark.parametrize(("status", "line"), UNREAD.values(), ids=UNREAD)
async def test_refusal_before_the_body_was_read_closes_the_connection(
    status: int, line: bytes, framing: str
) -> None:
    limits = ServerLimits(rate=None, body_bytes=100_000)
    may = Tokens(("sessions:read", "sessions:write"))
    head, body = line + HOST + JSON, b"x" * 200_000
    framed = b"Content-Length: 200000\r\n\r\n" + body
    if framing == "chunked":
        framed = CHUNKED + b"\r\n30d40\r\n" + body + b"\r\n0\r\n\r\n"
    async with serving(settings(limits=limits, auth=may)) as api:
        found, answer = await raw(api, head + framed + SMUGGLED)
        assert (found, statuses(answer)) == (status, [str(status).encode()])
        assert b"connection: close" in answer.lower()
        assert b'{"error":{"code":' in answer


def test_refused_client_that_still_sends_its_body_sees_the_answer(server: Served) -> None:
    """The body is larger than all buffers between the two, and refused at its first byte."""
    size = 48 << 20
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as line:
        line.sendall(POST + b"Content-Length: %d\r\n\r\n" % size)
        for _ in range(size >> 20):
            line.sendall(b"x" * (1 << 20))
        found = b""
        while piece := line.recv(65_536):
            found += piece
    assert statuses(found) == [b"413"]
    assert b"connection: close" in found.lower()


async def test_caller_that_asks_too_often_is_disconnected_with_its_body() -> None:
    limits = ServerLimits(rate=0.001, burst=1)
    head = POST + b"Authorization: Bearer ann@acme\r\nContent-Length: 2\r\n"
    async with serving(settings(limits=limits)) as api:
        status, _ = await raw(api, head + b"Connection: close\r\n\r\n{}")
        assert status == 201
        status, answer = await raw(api, head + b"\r\n{}" + SMUGGLED)
        assert (status, statuses(answer)) == (429, [b"429"])
        assert b"connection: close" in answer.lower()
