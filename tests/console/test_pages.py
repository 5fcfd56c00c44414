"""The page of the console and its files, without a browser: what is sent, and how."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import AsyncGenerator

import pytest

from holdfast.server.console.assets import FOLDER, NAMES, assets
from tests.server.scene import Api, serving, settings

RAW = 150 * 1024  # bytes of a page and its files, not compressed


async def test_the_page_runs_only_scripts_that_it_names() -> None:
    async with serving() as api:
        answer = await api.client.get("/console")
        policy = dict(
            one.split(" ", 1) for one in answer.headers["content-security-policy"].split("; ")
        )
        assert policy["default-src"] == policy["base-uri"] == policy["form-action"] == "'none'"
        assert policy["frame-ancestors"] == "'none'"
        assert policy["require-trusted-types-for"] == "'script'"
        (nonce,) = re.findall(r"^'nonce-([\w-]{24})'$", policy["script-src"])
        assert "unsafe" not in answer.headers["content-security-policy"]
        scripts = re.findall(r"<script ([^>]*)>", answer.text)
        assert len(scripts) == 2
        assert all(f'nonce="{nonce}"' in one for one in scripts)
        assert not re.search(r" on\w+=|style=|javascript:", answer.text)
        again = await api.client.get("/console")
        assert nonce not in again.text
        for header, value in (
            *(("cache-control", "no-store"), ("x-frame-options", "DENY")),
            *(("referrer-policy", "no-referrer"), ("x-content-type-options", "nosniff")),
        ):
            assert answer.headers[header] == value


@pytest.fixture
async def api() -> AsyncGenerator[Api, None]:
    async with serving() as one:
        yield one


async def test_every_file_is_sent_from_the_package(api: Api) -> None:
    places = ("", "/inbox", "/store", "/sessions/customer-42")
    pages = [(await api.client.get(f"/console{place}")).text for place in places]
    page = "".join(pages)
    linked = set(re.findall(r'(?:href|src)="([^"]+)"', page))
    later = set(re.findall(r"import\('\./([\w.]+)'\)", "".join(sources().values())))
    paths = {f"/console/static/{name}" for name in assets()}
    assert linked <= paths <= linked | {f"/console/static/{name}" for name in later}
    (names, *_) = re.findall(r'<script type="importmap"[^>]*>(.*?)</script>', page)
    assert {*json.loads(names)["imports"].values()} <= linked
    for path in linked:
        answer = await api.client.get(path)
        assert answer.status_code == 200
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-cache"
        tag = {"if-none-match": answer.headers["etag"]}
        assert (await api.client.get(path, headers=tag)).status_code == 304


async def test_every_place_has_an_address(api: Api) -> None:
    for path in ("inbox", "store", "sessions", "sessions/customer-42?at=7&thread=sub/c1"):
        answer = await api.client.get(f"/console/{path}")
        assert answer.status_code == 200
        assert "/console/static/app.js" in answer.text
        assert "set-cookie" not in answer.headers
    for path in ("nothing", "sessions/a/b", "inbox/x"):
        assert (await api.client.get(f"/console/{path}")).status_code == 404


async def test_an_address_with_a_slash_at_its_end_is_redirected(api: Api) -> None:
    for path, to in {
        "/console/": "/console",
        "/console/inbox/?at=7&thread=sub%2Fc1": "/console/inbox?at=7&thread=sub%2Fc1",
        "/console/sessions/a%3Ab%20%C3%A9/": "/console/sessions/a%3Ab%20%C3%A9",
    }.items():
        answer = await api.client.get(path)
        assert answer.status_code == 308
        assert answer.url.join(answer.headers["location"]).raw_path == to.encode()
    for path in ("/console//", "/console/sessions//", "//console/", "/console/static/app.js/"):
        assert (await api.client.get(path)).status_code == 404


async def test_no_other_file_can_be_read(api: Api) -> None:
    for path in (
        *("nothing.js", "../assets.py", "..%2fassets.py", "%2e%2e/assets.py", "vendor", "vendor/"),
        *("/etc/passwd", "%2fetc/passwd", "vendor/manifest.json", "app.js%00.css"),
    ):
        answer = await api.client.get(f"/console/static/{path}")
        assert answer.status_code == 404, path
        assert answer.json()["error"]["code"] == "not_found"


async def test_a_server_without_a_console_has_none() -> None:
    async with serving(settings(console=False)) as api:
        for path in ("/console", "/console/static/app.js"):
            assert (await api.client.get(path)).status_code == 404
        assert (await api.client.post("/console/login")).status_code == 404


def test_vendored_modules_are_those_of_the_manifest() -> None:
    vendor = FOLDER / "vendor"
    manifest = json.loads((vendor / "manifest.json").read_text())
    files = {name: digest for one in manifest["packages"] for name, digest in one["files"].items()}
    found = {path.name for path in vendor.iterdir()} - {"manifest.json"}
    assert found == {*files}
    for name, digest in files.items():
        algorithm, _, value = digest.partition("-")
        data = (vendor / name).read_bytes()
        assert base64.b64encode(hashlib.new(algorithm, data).digest()).decode() == value, name
    assert {name.partition("/")[2] for name in NAMES.values()} <= {*files}
    assert all(one["licence"] and one["version"] for one in manifest["packages"])


def sources() -> dict[str, str]:
    return {name: one.data.decode() for name, one in assets().items()}


@pytest.mark.parametrize("place", ["", "/inbox", "/store", "/sessions/customer-42"])
async def test_pages_are_small(api: Api, place: str) -> None:
    page = (await api.client.get(f"/console{place}")).text
    linked = set(re.findall(r'(?:href|src)="/console/static/([^"]+)"', page))
    assert len(page) + sum(len(assets()[name].data) for name in linked) <= RAW


def test_scripts_are_sent_without_comments() -> None:
    ours = [text for name, text in sources().items() if "vendor" not in name]
    assert not [line for text in ours for line in text.splitlines() if line[:2] in ("//", "/*")]
