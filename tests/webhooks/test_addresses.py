"""Addresses that a webhook must not reach, by whatever way an attacker writes or resolves them, and
answers that are to keep a sender busy."""

from __future__ import annotations

import pytest

from holdfast import InvalidValue
from holdfast.webhooks import HttpSender, WebhookReply, networks
from holdfast.webhooks.addresses import is_allowed, target

from .receiver import LOOPBACK, receiving
from .scene import sender

BAD_URLS = """
ftp://example.com/ file:///etc/passwd javascript:alert(1) //example.com/ example.com/hook https://
https:///path https://user@example.com/ https://user:pw@example.com/ https://example.com/#part
https://example.com:0/ https://example.com:65536/ https://example.com:x/ https://exa..mple.com/
https://[::1 https://[fe80::1%25eth0]/ https://.example.com/ https://exämple.com/
https://example.com\\@10.0.0.1/
"""

PRIVATE = """
0.0.0.0 10.0.0.1 100.64.0.1 127.0.0.1 127.1.2.3 169.254.169.254 172.16.0.1 192.0.0.8 192.168.0.1
198.18.0.1 224.0.0.1 240.0.0.1 255.255.255.255 :: ::1 fc00::1 fd12::1 fe80::1 fec0::1 ff02::1
::ffff:10.0.0.1 ::ffff:127.0.0.1 ::ffff:169.254.169.254 ::10.0.0.1 ::ffff:0:10.0.0.1
64:ff9b::10.0.0.1 64:ff9b:1::8.8.8.8 2002:a00:1:: 2001:0:5ef5:79fb::1 fe80::1%eth0 nonsense
"""
PUBLIC = "8.8.8.8 1.1.1.1 2606:4700:4700::1111 ::ffff:8.8.8.8 64:ff9b::8.8.8.8"


@pytest.mark.parametrize(
    "url", [*BAD_URLS.split(), "", "https://example.com/ x", "https://e/" + "x" * 2_000]
)
def test_a_bad_url_is_refused(url: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        target(url)
    assert caught.value.field == "url"


def test_a_url_is_taken_apart_once() -> None:
    to = target("https://Example.com:8443/a/b?c=d")
    assert (to.host, to.port, to.path) == ("example.com", 8443, "/a/b?c=d")
    assert to.site == "https://example.com:8443"
    assert target("http://[2606:4700::1]").site == "http://[2606:4700::1]"


def test_only_public_addresses_and_allowed_networks_are_allowed() -> None:
    assert [one for one in PRIVATE.split() if is_allowed(one)] == []
    assert [one for one in PUBLIC.split() if not is_allowed(one)] == []
    allowed = networks(["10.0.0.0/8", "fd00::/8"])
    assert is_allowed("10.1.2.3", allowed)
    assert is_allowed("::ffff:10.1.2.3", allowed)
    assert is_allowed("fd00::1", allowed)
    assert not is_allowed("192.168.0.1", allowed)
    with pytest.raises(InvalidValue):
        networks(["10.0.0.1/8"])


def named(*addresses: str) -> HttpSender:
    """A sender for whom every name has these addresses."""

    async def resolver(host: str, port: int) -> list[str]:
        return [*addresses]

    return HttpSender(networks(LOOPBACK), resolver=resolver, timeout=5)


async def post(sender: HttpSender, url: str) -> WebhookReply:
    try:
        return await sender.post(url, {"webhook-id": "msg_1"}, b"{}")
    finally:
        await sender.aclose()


@pytest.mark.parametrize("address", ["169.254.169.254", "::ffff:10.0.0.1", "10.0.0.1", "fd00::1"])
async def test_a_name_that_resolves_to_a_private_address_is_refused(address: str) -> None:
    for addresses in ([address], ["8.8.8.8", address]):
        reply = await post(named(*addresses), "https://hooks.example/")
        assert f"has the address {address}" in str(reply.error)


async def test_the_checked_address_is_the_one_that_is_connected_to() -> None:
    """A name that resolves to another address the second time is resolved once only."""
    asked: list[str] = []

    async def rebinding(host: str, port: int) -> list[str]:
        asked.append(host)
        return ["127.0.0.1"] if len(asked) == 1 else ["169.254.169.254"]

    async with receiving() as receiver:
        one = HttpSender(networks(LOOPBACK), resolver=rebinding)
        port = receiver.url.split(":")[2].split("/")[0]
        reply = await post(one, f"http://hooks.example:{port}/hook")
        assert (reply.status, asked) == (204, ["hooks.example"])
        assert receiver.got[0].headers["host"] == f"hooks.example:{port}"


async def test_plain_http_is_for_allowed_networks_only() -> None:
    reply = await post(named("8.8.8.8"), "http://hooks.example/")
    assert "unencrypted" in str(reply.error)


async def test_no_network_is_allowed_unless_the_operator_says_so() -> None:
    async with receiving() as receiver:
        reply = await post(HttpSender(), receiver.url)
        assert "127.0.0.1, which is not public" in str(reply.error)
        assert receiver.got == []


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_not_followed(status: int) -> None:
    async with receiving() as inner:
        location = f"HTTP/1.1 {status} Moved\r\nlocation: {inner.url}\r\ncontent-length: 0\r\n\r\n"
        async with receiving(lambda _: location.encode()) as receiver:
            reply = await post(sender(), receiver.url)
            assert (reply.status, reply.ok, inner.got) == (status, False, [])


async def test_an_endless_body_does_not_keep_the_sender() -> None:
    async with receiving(lambda _: "endless") as receiver:
        reply = await post(sender(timeout=20), receiver.url)
        assert reply.ok, "the status is what counts"


async def test_an_answer_that_never_comes_is_a_failure() -> None:
    async with receiving(lambda _: "stall") as receiver:
        reply = await post(sender(timeout=0.2), receiver.url)
        assert reply.error == "no answer within 0.2 s"


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nx: " + b"a" * 1_000_000 + b"\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 100_000 + b"\r\n",
        b"not HTTP at all\r\n\r\n",
        b"HTTP/1.1 99999 No\r\n\r\n",
    ],
)
async def test_an_answer_that_is_not_http_is_a_failure(answer: bytes) -> None:
    async with receiving(lambda _: answer) as receiver:
        reply = await post(sender(timeout=5), receiver.url)
        assert reply.status is None
        assert reply.error is not None


async def test_cookies_and_proxies_play_no_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    answer = b"HTTP/1.1 200 OK\r\nset-cookie: a=b\r\nretry-after: 7\r\ncontent-length: 0\r\n\r\n"
    async with receiving(lambda _: answer) as receiver:
        one = sender()
        for _ in range(2):
            reply = await one.post(receiver.url, {}, b"{}")
        await one.aclose()
        assert (reply.status, reply.retry_after) == (200, 7.0)
        assert "cookie" not in receiver.got[1].headers


async def test_a_host_without_an_address_is_a_failure() -> None:
    assert "no address" in str((await post(named(), "https://hooks.example/")).error)
    reply = await post(HttpSender(timeout=5), "https://nowhere.invalid/")
    assert reply.status is None
