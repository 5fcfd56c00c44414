"""The page of the HTTP reference: whole without a network, safe in a browser, framed by nobody."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any

from holdfast.server.http.reference_page import page

from .scene import Api

HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>`code`"


class Seen(HTMLParser):
    """The elements of a page, and what they point to."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.links: set[str] = set()
        self.ids: set[str] = set()
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        given = dict(attrs)
        self.links |= {given[name] or "" for name in ("href", "src") if name in given}
        self.ids |= {given["id"] or ""} if "id" in given else set()

    def handle_data(self, data: str) -> None:
        self.text += data


def seen(text: str) -> Seen:
    found = Seen()
    found.feed(text)
    return found


async def test_page_loads_nothing_and_runs_nothing(api: Api) -> None:
    answer = await api.ask("GET", "/docs", by=None)
    found = seen(answer.text)
    assert not found.tags & {"script", "iframe", "img", "link", "object", "form", "input"}
    assert not [name for name in found.attributes if name.startswith("on")]
    outside = {link for link in found.links if not link.startswith("#")}
    assert outside == {"openapi.json"}
    assert {link[1:] for link in found.links - outside} <= found.ids
    assert "/v1/sessions/{session_id}/events" in found.text
    assert "url(" not in answer.text
    assert "@import" not in answer.text


async def test_no_answer_may_be_framed_or_taken_for_what_it_is_not(api: Api) -> None:
    await api("PUT", "/sessions/one")
    for path in ("/docs", "/openapi.json", "/health", "/sessions/one", "/sessions/none", "/none"):
        headers = (await api.ask("GET", path)).headers
        policy = headers["content-security-policy"]
        assert "frame-ancestors 'none'" in policy, path
        assert "default-src 'none'" in policy, path
        assert "script-src" not in policy, path
        assert (headers["x-frame-options"], headers["x-content-type-options"]) == (
            "DENY",
            "nosniff",
        )


async def test_style_of_the_page_is_the_one_that_its_policy_allows(api: Api) -> None:
    import base64
    import hashlib

    answer = await api.ask("GET", "/docs")
    (style,) = re.findall(r"<style>(.*?)</style>", answer.text, re.DOTALL)
    hashed = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert f"'sha256-{hashed}'" in answer.headers["content-security-policy"]


def test_what_a_document_says_is_text_and_no_markup() -> None:
    operation: dict[str, Any] = {
        "operationId": HOSTILE,
        "description": HOSTILE,
        "parameters": [
            {
                "name": HOSTILE,
                "in": HOSTILE,
                "schema": {"type": HOSTILE, "default": HOSTILE, "pattern": HOSTILE},
            }
        ],
        "requestBody": {"content": {HOSTILE: {"schema": {"$ref": f"#/x/{HOSTILE}"}}}},
        "responses": {
            "200": {"description": HOSTILE, "content": {HOSTILE: {"schema": {"enum": [HOSTILE]}}}},
            "400": {"description": HOSTILE},
        },
    }
    document: dict[str, Any] = {
        "info": {"title": HOSTILE, "version": HOSTILE, "description": HOSTILE},
        "paths": {HOSTILE: {"get": operation}},
        "components": {
            "schemas": {
                HOSTILE: {"description": HOSTILE, "properties": {HOSTILE: {"type": [HOSTILE]}}},
                "other": {"anyOf": [{"type": "array", "items": {"type": HOSTILE}}]},
            }
        },
    }
    found = seen(page(document))
    assert not found.tags & {"script", "img"}
    assert "onerror" not in found.attributes
    assert found.text.count("<script>alert(1)</script>") > 10
