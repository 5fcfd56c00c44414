"""The OpenAPI document: whole, and true."""

from __future__ import annotations

import logging

import httpx
import pytest

from .openapi import in_a_thread, operations, seed, try_out

PARTS = 6


@pytest.mark.parity("computeragent", "S12")
@pytest.mark.parametrize("part", range(PARTS))
def test_nothing_is_answered_that_the_document_does_not_tell_of(
    caplog: pytest.LogCaptureFixture, part: int
) -> None:
    caplog.set_level(logging.CRITICAL)
    with in_a_thread() as url:
        seed(url)
        found = operations(url)
        for operation in [*found.values()][part::PARTS]:
            try_out(operation, examples=2)
    assert {"create_session", "send_message", "approve", "get_events", "list_inbox"} <= {*found}


def test_the_document_and_its_page_need_no_key() -> None:
    with in_a_thread() as url:
        document = httpx.get(f"{url}/v1/openapi.json")
        assert document.json()["openapi"].startswith("3.")
        page = httpx.get(f"{url}/v1/docs")
        assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
        for operation in document.json()["paths"].values():
            assert all(f'id="{about["operationId"]}"' in page.text for about in operation.values())
        for name in document.json()["components"]["schemas"]:
            assert f'id="type-{name}"' in page.text
            assert "." not in name, "two types share a name"
    with in_a_thread(docs=False) as url:
        answer = httpx.get(f"{url}/v1/openapi.json")
        assert answer.json()["error"]["code"] == "not_found"
