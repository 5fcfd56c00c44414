"""What redaction must not do beside finding secrets: break JSON, lose text, alter what only looks
like one; and what it must not miss in odd places."""

from __future__ import annotations

import hashlib
import json

import pytest

from holdfast.bundle.redaction.scrub import Scrub, ScrubConfig
from holdfast.redact import Redactor

TOKEN = "Zk29xLmQ8vR4tY7uWpA1"


def scrubbed(text: str) -> str:
    return Scrub("sanitized", ScrubConfig(detector=False, personal=("all",))).text(text, "$")


@pytest.mark.parametrize(
    "value",
    [
        {"a": "x\n:\ny"},
        {"x": "éann@example.org"},
        {"x": [52.520008, 13.404954]},
        {"c:\\users": "d:\\home\\ann"},
    ],
)
def test_json_in_a_text_stays_json_whatever_is_looked_for(value: object) -> None:
    for text in (json.dumps(value), json.dumps(value, ensure_ascii=False)):
        assert same_shape(json.loads(scrubbed(text)), value)


def same_shape(found: object, value: object) -> bool:
    """Whether a value still has its structure: only texts and numbers may have become texts."""
    if isinstance(value, dict):
        return isinstance(found, dict) and len(found) == len(value)
    if isinstance(value, list):
        return (
            isinstance(found, list)
            and len(found) == len(value)
            and all(map(same_shape, found, value))
        )
    return isinstance(found, str | type(value))


def test_json_that_is_too_deep_is_read_as_text() -> None:
    deep = "[" * 130 + f'"password={TOKEN}"' + "]" * 130
    left = Redactor().text(deep)
    assert TOKEN not in left
    assert left.startswith("[" * 130)
    nothing = "[" * 130 + "]" * 130
    assert Redactor().text(nothing) == nothing


def test_json_with_a_name_twice_loses_nothing() -> None:
    text = f'{{"n":1e400,"n":123456789012345678901234567890.5,"password":"{TOKEN}"}}'
    assert Redactor().text(text) == text.replace(TOKEN, "[redacted]")


def test_half_a_character_in_a_name_hides_nothing() -> None:
    text = '{"\\ud800":1,"password":["a",{"b":"Xk29!kdLm"}]}'
    assert "Xk29!kdLm" not in Redactor().text(text)


@pytest.mark.parametrize(
    "text",
    [
        "Look for `-----BEGIN RSA PRIVATE KEY-----` in files.\n\nNext paragraph.",
        'if line.startswith("-----BEGIN PRIVATE KEY-----"):\n    return parse(line)\n',
        'PATTERN = re.compile(r"\\d\\d:\\d\\d")',
    ],
)
def test_code_and_prose_that_only_mention_it_stay(text: str) -> None:
    assert scrubbed(text) == text


@pytest.mark.parametrize("lead", ["token=", "password: ", "the token is "])
def test_no_end_of_a_long_value_is_left(lead: str) -> None:
    value = "".join(hashlib.sha256(bytes([n])).hexdigest() for n in range(120))
    left = Redactor().text(f"{lead}{value} and so on")
    assert value[-8:] not in left
    assert left.endswith(" and so on")


@pytest.mark.parametrize(
    "value",
    [
        *("auth.Xk29!kdLm", f"user.{TOKEN}", "this.Summer2024!", "!Xk29Lm#9", ":Xk29kdLm"),
        *("#{Xk29!kdLm", "(Xk29!kdLm)", "Xk29!kdLm…", "aB3$(x9K!"),
    ],
)
def test_a_password_as_data_is_one_whatever_it_begins_with(value: str) -> None:
    assert Redactor()({"password": value}) == {"password": "[redacted]"}


@pytest.mark.parametrize(
    "value", ["${DB_PASSWORD_2}", "{{ vault.db1 }}", "<your-password-1>", "vault:kv/db#pw", "$PW1"]
)
def test_a_reference_as_data_stays(value: str) -> None:
    assert Redactor()({"password": value}) == {"password": value}


@pytest.mark.parametrize("rim", "│┃")
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_token_that_is_wrapped_in_a_box_is_found(rim: str, end: str) -> None:
    halves = "gh" + "p_16C7e42F292c6912", "E7710c838347Ae178B4a"
    left = Redactor().text(end.join(f"{rim} {half} {rim}" for half in halves))
    assert not any(half in left for half in halves)


def test_a_reason_shows_no_secret() -> None:
    reasons: list[str] = []
    redactor = Redactor(on_seen=lambda seen: reasons.append(seen.reason))
    redactor.text(f"<a>{TOKEN}</a><b>Summer2024!x</b> password: {TOKEN}")
    assert not any(TOKEN in reason or "Summer2024" in reason for reason in reasons)
