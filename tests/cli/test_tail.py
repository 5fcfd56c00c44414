"""`holdfast tail`, beside processes that write."""

from __future__ import annotations

import json
import signal
import subprocess

import pytest

from .conftest import Cli
from .programs import append, start


def next_event(process: subprocess.Popen[str]) -> tuple[int, str]:
    assert process.stdout is not None
    event = json.loads(process.stdout.readline())
    return event["seq"], event["data"]["text"]


def test_without_following_it_replays_the_last_events(shop: str, cli: Cli) -> None:
    ended = cli("tail", "customer-42", "--events", "2", "--no-follow", "--json")
    assert ended.code == 0
    assert [event["seq"] for event in ended.lines] == [3, 4]
    ended = cli("tail", "customer-42", "--after", "0", "--no-follow")
    assert len(ended.out.splitlines()) == 6


def test_it_follows_what_another_process_appends_until_ctrl_c(url: str) -> None:
    append(url, "s", "one", "two", "three")
    with start("tail", "s", "--events", "2", "--store", url, "--json") as tail:
        assert [next_event(tail), next_event(tail)] == [(2, "two"), (3, "three")]
        append(url, "s", "four", "fünf")
        assert [next_event(tail), next_event(tail)] == [(4, "four"), (5, "fünf")]
        tail.send_signal(signal.SIGINT)
        out, err = tail.communicate()
    assert (tail.returncode, out, err) == (130, "", "")


def test_it_ends_with_an_error_when_the_session_is_deleted(url: str, cli: Cli) -> None:
    append(url, "s", "one")
    with start("tail", "s", "--store", url, "--json") as tail:
        assert next_event(tail) == (1, "one")
        assert cli("delete", "s", "--yes", "--store", url).code == 0
        _, err = tail.communicate()
    assert tail.returncode == 1
    assert json.loads(err)["code"] in ("session_not_found", "log_replaced")


@pytest.mark.parametrize("form", ["--json", "--full"])
def test_it_ends_quietly_when_its_reader_leaves(url: str, form: str) -> None:
    append(url, "s", "one")
    with start("tail", "s", "--store", url, form) as tail:
        assert tail.stdout is not None
        assert "one" in tail.stdout.readline()
        tail.stdout.close()
        assert tail.stderr is not None
        assert tail.stderr.read() == ""
    assert tail.returncode == 141
