"""The manifest says which rule hit where and how often, and never what."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import msgspec
import pytest

from holdfast.bundle.redaction.manifest import ENTRIES, HitCounter, Mode, Pseudonyms, Redaction
from holdfast.bundle.redaction.scrub import Scrub, ScrubConfig
from holdfast.errors import InvalidValue
from holdfast.events import NewEvent

from .canaries import SECRETS
from .places import UUID, every_place, stored

KEY = "gh" + "p_" + "0123456789abcdefghijABCDEFGHIJ456789"


def hits(scrub: Scrub) -> list[tuple[str, str, str, int]]:
    return [(e.rule, e.kind, e.path, e.count) for e in scrub.manifest().entries]


@pytest.mark.parity("user-demand", 63)
@pytest.mark.parity("harn-bundle", 46)
def test_every_hit_has_its_rule_its_class_and_its_place() -> None:
    scrub = Scrub("sanitized", ScrubConfig(secrets=("hunter2!",), personal=("email",)))
    scrub.event(
        stored(
            NewEvent.of(
                "tool.finished",
                {
                    "call": UUID,
                    "result": {
                        "a.b": [{"it's": KEY}],
                        "größe": {"password": "x"},
                        "": "mail ann@example.org and bob@example.org",
                    },
                    "error": "hunter2! and hunter2! in /home/ann/x.py",
                },
                actor="cli:ann",
            )
        ),
        "$.threads[0].events[3]",
    )
    at = "$.threads[0].events[3]"
    assert hits(scrub) == [
        ("github", "api_key", f'{at}.data.result["a.b"][0]["it\'s"]', 1),
        ("key", "secret", f'{at}.data.result["größe"].password', 1),
        ("email", "email", f'{at}.data.result[""]', 2),
        ("value", "secret", f"{at}.data.error", 2),
        ("path", "path", f"{at}.data.error", 1),
        ("user", "user", f"{at}.actor", 1),
    ]


@pytest.mark.parity("harn-bundle", 48)
def test_its_head_says_what_was_done() -> None:
    assert Scrub("local").manifest() == Redaction()
    assert Redaction().policy == "none"
    sanitized = Scrub("sanitized", ScrubConfig(personal=("email", "card"))).manifest()
    assert (sanitized.mode, sanitized.policy, sanitized.version) == ("sanitized", "holdfast", 1)
    assert sanitized.placeholder == "[redacted:CLASS:NUMBER]"
    assert sanitized.personal == ["card", "email"]
    assert [name.split()[0] for name in sanitized.detectors] == ["detect-secrets"]
    replayed = Scrub("replay_only").manifest()
    assert (replayed.mode, replayed.placeholder) == ("replay_only", "[withheld:NUMBER]")


@pytest.mark.parity("harn-bundle", 47)
def test_what_changed_is_what_is_listed() -> None:
    scrub = Scrub("sanitized", ScrubConfig(personal=("all",)))
    value = {
        "plain": ["a", 1, {"b": None}],
        "password": "x",
        "list": ["ok", KEY, {"url": "db://u:p@h", "n": 4111111111111111}],
        "deep": {"deeper": {"token": ["a", "b"], "note": "fine"}},
    }
    kept = scrub.value(value, "$.metadata")
    changed = dict(_leaves(value, "$.metadata").items() - _leaves(kept, "$.metadata").items())
    assert sorted(changed) == sorted(e.path for e in scrub.manifest().entries)


def _leaves(value: Any, path: str) -> dict[str, str]:
    if isinstance(value, dict):
        parts = [_leaves(item, f"{path}.{name}") for name, item in value.items()]
    elif isinstance(value, list):
        parts = [_leaves(item, f"{path}[{n}]") for n, item in enumerate(value)]
    else:
        return {path: repr(value)}
    return {at: leaf for part in parts for at, leaf in part.items()}


@pytest.mark.parity("harn-bundle", 113)
@pytest.mark.parametrize("mode", ["sanitized", "replay_only"])
def test_the_totals_are_those_of_the_entries(mode: Mode) -> None:
    scrub = Scrub(mode)
    for n, canary in enumerate(SECRETS[:60:12]):
        for m, event in enumerate(every_place(canary.text)):
            scrub.event(event, f"$.threads[{n}].events[{m}]")
    found = scrub.manifest()
    by_class: dict[str, int] = {}
    by_rule: dict[str, int] = {}
    for entry in found.entries:
        by_class[entry.kind] = by_class.get(entry.kind, 0) + entry.count
        by_rule[entry.rule] = by_rule.get(entry.rule, 0) + entry.count
    assert found.totals == by_class
    assert found.rules == by_rule
    assert found.omitted == 0
    assert list(found.totals) == sorted(found.totals)


def test_it_does_not_grow_without_end() -> None:
    tally = HitCounter(limit=3)
    for n in range(20):
        tally.add("key", "secret", f"$[{n // 2}]")
    tally.add("key", "secret", "$[0]")
    found = tally.redaction("sanitized", "", (), ())
    assert [entry.count for entry in found.entries] == [3, 2, 2]
    assert (found.totals, found.omitted) == ({"secret": 21}, 14)
    assert ENTRIES == 20_000


def test_so_many_values_are_told_apart_and_ids_always() -> None:
    names = Pseudonyms(limit=2)
    assert [names.redacted("path", value) for value in "abac"] == [
        "[redacted:path:1]",
        "[redacted:path:2]",
        "[redacted:path:1]",
        "[redacted:path]",
    ]
    assert names.withheld("d") == "[withheld]"
    assert names.withheld("e", pairs=True) == names.withheld("e", pairs=True) == "[withheld:1]"
    for text in ("[redacted:path]", "[withheld]"):
        assert Scrub("sanitized").text(f"password={text}", "$") == f"password={text}"
        assert Scrub("replay_only").text("[withheld]", "$") == "[withheld]"


def test_the_class_is_written_as_such() -> None:
    scrub = Scrub("sanitized")
    scrub.text(KEY, "$.x")
    (entry,) = msgspec.to_builtins(scrub.manifest())["entries"]
    assert entry == {"rule": "github", "class": "api_key", "path": "$.x", "count": 1}


@pytest.mark.parity("user-demand", 63)
def test_equal_values_have_equal_placeholders_numbered_as_they_come() -> None:
    scrub = Scrub("sanitized", ScrubConfig(people=("Ann Lee",)))
    other = KEY.replace("0123", "3210")
    text = scrub.text(f"{KEY} {other} {KEY}", "$")
    assert text == "[redacted:api_key:1] [redacted:api_key:2] [redacted:api_key:1]"
    assert scrub.value({"token": other, "x": KEY}, "$") == {
        "token": "[redacted:api_key:2]",
        "x": "[redacted:api_key:1]",
    }
    assert scrub.text("ann lee, ANN  LEE", "$") == "[redacted:person:1], [redacted:person:1]"
    assert scrub.text("/home/a/x.py /home/a/y.py /home/b/x.py", "$") == (
        "[redacted:path:1]/x.py [redacted:path:1]/y.py [redacted:path:2]/x.py"
    )


@pytest.mark.parity("user-demand", 63)
def test_the_same_calls_give_the_same_bytes() -> None:
    def run() -> list[bytes]:
        scrub = Scrub("sanitized")
        events = [e for canary in SECRETS[::20] for e in every_place(canary.text)]
        done = [msgspec.json.encode(scrub.event(e, f"$[{n}]")) for n, e in enumerate(events)]
        return [*done, msgspec.json.encode(scrub.manifest())]

    assert run() == run()


@pytest.mark.parity("harn-bundle", 36, 42)
def test_a_host_adds_names_patterns_values_and_folders() -> None:
    config = ScrubConfig(
        keys=("customerNumber",),
        patterns={"ticket": r"TICKET-\d+", "pin": r"pin (\d{4})"},
        secrets=("correct horse",),
        roots=("/srv/shop",),
    )
    scrub = Scrub("sanitized", config)
    assert scrub.value({"customer_number": "5", "password": "x"}, "$") == {
        "customer_number": "[redacted:secret:1]",
        "password": "[redacted:secret:2]",
    }
    text = scrub.text("TICKET-77 has pin 1234, correct horse, /srv/shop/a/b.db", "$")
    assert text == (
        "[redacted:ticket:1] has pin [redacted:pin:1], [redacted:secret:3], [redacted:path:1]/b.db"
    )
    assert {"ticket", "pin"} <= set(scrub.manifest().totals)


@pytest.mark.parametrize(
    "config",
    [
        ScrubConfig(secrets=("abc",)),
        ScrubConfig(patterns={"Not A Class": "x"}),
        ScrubConfig(patterns={"bad": "(hunter2"}),
        ScrubConfig(personal=("hunter2",)),
        ScrubConfig(people=("Al",)),
    ],
)
def test_what_cannot_be_looked_for_is_refused_without_saying_it(config: ScrubConfig) -> None:
    with pytest.raises(InvalidValue) as caught:
        Scrub("sanitized", config)
    assert "hunter2" not in str(caught.value)
    assert caught.value.remedy


ALONE = """
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("detect_secrets", "stdnum"):
            raise ImportError(name)
sys.meta_path.insert(0, Blocked())
from holdfast.bundle.redaction.scrub import Scrub, ScrubConfig
scrub = Scrub("sanitized", ScrubConfig(personal=("all",)))
print(scrub.text("password=hunter2 ssn 536-90-4399", "$"), scrub.manifest().detectors)
"""


def test_without_the_extra_our_own_rules_look_alone_and_the_manifest_says_so() -> None:
    done = subprocess.run(
        [sys.executable, "-c", ALONE], capture_output=True, text=True, check=True, timeout=120
    )
    assert done.stdout == "password=[redacted:secret:1] ssn [redacted:ssn:1] []\n"
