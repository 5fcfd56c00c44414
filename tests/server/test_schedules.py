"""Schedules over HTTP."""

from __future__ import annotations

from typing import Any

import pytest

from .scene import Api

PATH = "/sessions/one/schedules"


async def test_schedules_are_set_listed_paused_resumed_and_removed(api: Api) -> None:
    await api("PUT", "/sessions/one")
    body = {"message": "Report.", "cron": "0 9 * * 1-5", "timezone": "Europe/Berlin"}
    made = await api("PUT", f"{PATH}/report", body)
    assert (made["name"], made["every"], made["paused"]) == ("report", None, False)
    assert await api("PUT", f"{PATH}/report", body) == made
    assert (await api("GET", PATH))["items"] == [made]
    assert (await api("GET", f"{PATH}?thread=main"))["items"] == [made]
    shown = await api("GET", "/sessions/one/display")
    assert shown["schedules"] == {"report": {"next": made["next"]}}
    assert (await api("POST", f"{PATH}/report/pause"))["next"] is None
    assert (await api("POST", f"{PATH}/report/resume"))["next"] == made["next"]
    assert await api("DELETE", f"{PATH}/report") == {"removed": True}
    assert await api("DELETE", f"{PATH}/report") == {"removed": False}
    fields = await api.fails("invalid_value", "POST", f"{PATH}/report/pause")
    assert fields["field"] == "name"
    events = (await api("GET", "/sessions/one/events?kind=timer.scheduled"))["items"]
    assert [event["actor"] for event in events] == ["ann"]


@pytest.mark.parametrize(
    ("field", "body"),
    [
        ("cron", {"message": "x", "cron": "* * * * * *"}),
        ("cron", {"message": "x", "cron": "0 0 30 2 *"}),
        ("cron", {"message": "x"}),
        ("every", {"message": "x", "every": -5}),
        ("every", {"message": "x", "every": 59.9}),
        ("timezone", {"message": "x", "cron": "0 9 * * *", "timezone": "../etc/passwd"}),
        ("timezone", {"message": "x", "cron": "0 9 * * *", "timezone": "x" * 300}),
        ("missed", {"message": "x", "every": 60, "missed": "all"}),
        ("message", {"message": "  ", "every": 60}),
        (
            "metadata.holdfast.source",
            {"message": "x", "every": 60, "metadata": {"holdfast.source": 1}},
        ),
    ],
)
async def test_what_is_no_schedule_is_refused(api: Api, field: str, body: Any) -> None:
    await api("PUT", "/sessions/one")
    assert (await api.fails("invalid_value", "PUT", f"{PATH}/x", body))["field"] == field
    assert (await api("GET", PATH))["items"] == []
