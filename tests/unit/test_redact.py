"""What is secret is masked, what is not stays, and no text makes it slow."""

from __future__ import annotations

import base64
import copy
import dataclasses
import json
import urllib.parse
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from holdfast.errors import InvalidValue, StoreError
from holdfast.events import NewEvent
from holdfast.redact import Redactor, words

MASK = "[redacted]"
SECRET = "Tr0ub4dor&3 ünïcode/plus+"

SECRET_NAMES = """
password Password newPassword password_hash passwd pwd passphrase api_key apiKey APIKey X-Api-Key
OPENAI_API_KEY apikey access_token accessToken refresh_tokens token tokens id-token authorization
Proxy-Authorization cookie cookies set-cookie setCookie secret client_secret secrets private_key
privateKey aws_secret_access_key credentials
"""
PLAIN_NAMES = """
input_tokens inputTokens output_tokens max_tokens maxTokens token_count tokenCount total_tokens
tokens_per_second prompt_tokens_details secretary token_type token_limit secret_name keyboard
author cookiecutter passwordless monkey api key session thread run usage password_policy
"""


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("apiKey", ("api", "key")),
        ("X-Api-Key", ("x", "api", "key")),
        ("HTTPServerURL2", ("http", "server", "url", "2")),
        ("snake_case", ("snake", "case")),
        ("größeÄndern", ("größeändern",)),
        ("", ()),
        ("--", ()),
    ],
)
def test_a_name_is_cut_into_words(name: str, found: tuple[str, ...]) -> None:
    assert words(name) == found


@pytest.mark.parity("harness-kernel", 140)
@pytest.mark.parametrize("name", SECRET_NAMES.split())
def test_what_stands_under_the_name_of_a_secret_is_masked_however_deep(name: str) -> None:
    value = {"a": [{"b": ({name: "hunter2"}, 1)}], name: ["x", {"y": "z"}]}
    assert Redactor()(value) == {
        "a": [{"b": ({name: MASK}, 1)}],
        name: [MASK, {"y": MASK}],
    }


@pytest.mark.parity("harness-kernel", 141)
@pytest.mark.parametrize("name", PLAIN_NAMES.split())
def test_what_only_sounds_like_a_secret_stays(name: str) -> None:
    value = {"usage": {name: 1200}, name: "plain", "list": [{name: {"deeper": "x"}}]}
    assert Redactor()(value) == value


@pytest.mark.parity("harness-kernel", 141)
def test_numbers_of_tokens_stay_and_other_secret_numbers_do_not() -> None:
    value = {"tokens": 5, "token": 7, "tokens ": {"input": 3, "cost": 0.5}, "pin": None}
    assert Redactor()(value) == value
    assert Redactor()({"password": 1234, "secret": 1.5}) == {"password": MASK, "secret": MASK}
    assert Redactor()({"token": "7", "tokens": ["a"]}) == {"token": MASK, "tokens": [MASK]}
    assert Redactor()({"secret": None, "has_password": True, "token": ""}) == {
        "secret": None,
        "has_password": True,
        "token": "",
    }


@pytest.mark.parity("harness-kernel", 141)
def test_what_is_shared_is_no_circle_and_a_circle_is_cut() -> None:
    shared = {"a": 1}
    assert Redactor()([shared, shared, {"again": shared}]) == [shared, shared, {"again": shared}]
    circle: dict[str, Any] = {"n": 1}
    circle["self"] = [circle]
    assert Redactor()(circle) == {"n": 1, "self": ["[circular]"]}


def test_more_than_can_be_looked_through_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.redact.traversal.VALUES", 10_000)
    deep: Any = "end"
    for _ in range(500):
        deep = [deep]
    assert "[too deep]" in str(Redactor()(deep))
    wide: Any = ["leaf"]
    for _ in range(40):
        wide = [wide, wide]  # two to the fortieth, by reference
    start = Redactor()(wide)
    assert _leaf(start) == "leaf"
    while isinstance(start, list):
        start = start[-1]
    assert start == "[too much]"


def _leaf(value: Any) -> Any:
    while isinstance(value, list):
        value = value[0]
    return value


def test_a_name_of_your_own_is_one_in_every_manner() -> None:
    redactor = Redactor(keys=["customerNumber"])
    value = {"customer_number": "1", "Customer-Number": "2", "customer": "3", "password": "4"}
    assert redactor(value) == {
        "customer_number": MASK,
        "Customer-Number": MASK,
        "customer": "3",
        "password": "4",
    }


class Login(Struct, frozen=True):
    user: str
    password: str
    tokens: int = 0


@dataclasses.dataclass
class Settings:
    host: str
    api_key: str


class Refusing:
    def __str__(self) -> str:
        raise RuntimeError


class Careful(Struct, frozen=True):
    secret: str

    def __post_init__(self) -> None:
        if not self.secret.isdigit():
            raise ValueError(self.secret)


@pytest.mark.parametrize(
    ("value", "masked"),
    [
        (Login("ann", "x", 3), Login("ann", MASK, 3)),
        (Settings("h", "x"), {"host": "h", "api_key": MASK}),
        (Careful("123"), {"secret": MASK}),
        (ValueError("password=x"), f"ValueError: password={MASK}"),
        (KeyError(), "KeyError"),
        (StoreError(problem="at db://u:x@h"), f"StoreError: at db://u:{MASK}@h"),
        (b"abc", "[3 bytes]"),
        (("Authorization", "Digest x"), ("Authorization", MASK)),
        ([("X-Trace", "t"), ("X-Api-Key", "x")], [("X-Trace", "t"), ("X-Api-Key", MASK)]),
        ({"name": "API_KEY", "value": "x"}, {"name": "API_KEY", "value": MASK}),
        ({"name": "HOME", "value": "/root"}, {"name": "HOME", "value": "/root"}),
        (Refusing(), "[Refusing]"),
        ({1: "a", None: {"secret": "x"}}, {1: "a", None: {"secret": MASK}}),
        (frozenset({"a"}), ["a"]),
        (1.5, 1.5),
        (None, None),
    ],
)
def test_values_of_many_kinds(value: Any, masked: Any) -> None:
    assert Redactor()(value) == masked


def test_the_data_of_an_event_stay_json() -> None:
    event = NewEvent.of("x.y", {"password": "x", "n": 1})
    masked = Redactor()(event)
    assert isinstance(masked, NewEvent)
    assert (masked.id, json.loads(bytes(masked.data))) == (event.id, {"password": MASK, "n": 1})


def test_what_is_given_is_not_changed() -> None:
    value = {"password": "x", "a": [{"url": "db://u:x@h"}, ("cookie", "y")]}
    before = copy.deepcopy(value)
    Redactor()(value)
    assert value == before


# One line each: a text, and what is left of it, where it is not the same.
TEXTS = [
    ("postgres://ann:hunter2@db:5432/x", f"postgres://ann:{MASK}@db:5432/x"),
    ("a mongodb+srv://u:p%40w@h/?x=1 b", f"a mongodb+srv://u:{MASK}@h/?x=1 b"),
    ("redis://:pw@h", f"redis://:{MASK}@h"),
    ("amqp://u:p@ss@h", f"amqp://u:{MASK}@h"),
    ("postgres://u:pa/ss@h/db", f"postgres://u:{MASK}@h/db"),
    ("https://tok3n@github.com/a/b", f"https://{MASK}@github.com/a/b"),
    ("https://t0ken:@api.example.com", f"https://{MASK}:@api.example.com"),
    ("see http://a/?to=db://u:p@h&x", f"see http://a/?to=db://u:{MASK}@h&x"),
    ("Bearer xyz", f"Bearer {MASK}"),
    ("auth: bearer aB3.d_e-f", f"auth: bearer {MASK}"),
    ("Basic dXNlcjpwYXNz", f"Basic {MASK}"),
    ("key sk-proj-abc123def456ghi789 ok", f"key {MASK} ok"),
    ("sk-ant-api03-AbCdEfGhIjKlMnOp", MASK),
    ("ghp_0123456789abcdefghijABCDEFGHIJ456789", MASK),
    ("github_pat_11ABCDEFG0123456789_abcdefghijkl", MASK),
    ("xoxb-123456789012-abcdefABCDEF", MASK),
    ("id AKIAIOSFODNN7EXAMPLE.", f"id {MASK}."),
    ("AIzaSyA1234567890abcdefghijklmnopqrstuv", MASK),
    ("sk_live_4eC39HqLyjWDarjtT1", MASK),
    ("jwt eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl!", f"jwt {MASK}!"),
    ("a -----BEGIN RSA PRIVATE KEY-----\nMII-E\n-----END RSA PRIVATE KEY----- b", f"a {MASK} b"),
    ("-----BEGIN OPENSSH PRIVATE KEY-----\ncut off", MASK),
    ("password=hunter2 user=ann", f"password={MASK} user=ann"),
    ("password == 'hunter 2' or", f"password == '{MASK}' or"),
    ('{"apiKey": "a b\\"c", "n": 1}', f'{{"apiKey": "{MASK}", "n": 1}}'),
    (r"{\"apiKey\": \"a b\", \"n\": 1}", rf"{{\"apiKey\": \"{MASK}\", \"n\": 1}}"),
    ("{'client_secret': 'x', 'y': 1}", f"{{'client_secret': '{MASK}', 'y': 1}}"),
    ("run --token abc --force", f"run --token {MASK} --force"),
    ("GET /?access_token=abc&page=2", f"GET /?access_token={MASK}&page=2"),
    ("Cookie: a=b; c=d\nHost: h", f"Cookie: {MASK}\nHost: h"),
    ("Authorization: Digest a, b\nHost: h", f"Authorization: {MASK}\nHost: h"),
    ("note='the password=x there' end", f"note='the password={MASK} there' end"),
]
PLAIN_TEXTS = [
    "ssh://git@github.com/a",
    "http://host:8080/a@b",
    "https://example.com/@scope/pkg@1.0",
    "a bearer token is required; Basic information follows",
    'WWW-Authenticate: Bearer realm="x"',
    "sk-learn-contrib-is-a-package",
    "def login(user: str, password: str)",
    '{"password": null, "token": true}',
    "input_tokens=12 max_tokens: 4096 tokens=7 token_count=3",
    "the secretary: Ann",
    "token: int, tokens: list[str], tokens = run.tokens + more",
    "password=",
    "eyJ is how they begin",
    "naïve 日本語 text, with: colons = signs",
]


@pytest.mark.parity("harness-kernel", 141)
@pytest.mark.parametrize(("text", "masked"), TEXTS)
def test_what_looks_like_a_secret_is_masked_within_a_text(text: str, masked: str) -> None:
    redactor = Redactor()
    assert redactor.text(text) == masked
    assert redactor({"a": [text]}) == {"a": [masked]}
    assert redactor.text(masked) == masked
    assert Redactor(shapes=False).text(text) == text


@pytest.mark.parametrize("text", PLAIN_TEXTS)
def test_other_text_stays_as_it_is(text: str) -> None:
    assert Redactor().text(text) == text


@pytest.mark.parametrize(
    "travelling",
    [
        SECRET,
        f"in the middle:{SECRET}.",
        json.dumps({"k": SECRET}),
        json.dumps({"k": SECRET}, ensure_ascii=False),
        json.dumps(json.dumps(SECRET, ensure_ascii=False), ensure_ascii=False),
        repr([SECRET]),
        f"https://h/?k={urllib.parse.quote(SECRET, safe='')}",
        f"k={urllib.parse.quote_plus(SECRET)}",
        base64.b64encode(SECRET.encode()).decode(),
        base64.b64encode(f"user:{SECRET}".encode()).decode(),
        base64.b64encode(f"u:{SECRET} and more".encode()).decode(),
        base64.urlsafe_b64encode(f"us:{SECRET}!".encode()).decode(),
    ],
)
def test_a_learned_secret_is_found_in_the_forms_in_which_it_travels(travelling: str) -> None:
    redactor = Redactor(keys=(), shapes=False)
    assert redactor.text(travelling) == travelling
    redactor.learn(SECRET)
    assert MASK in redactor.text(travelling)
    assert not _leaks(redactor.text(travelling))
    assert MASK in str(redactor({travelling: 1}))


def _leaks(text: str) -> bool:
    """Whether the middle of the secret is still there, plain or decoded."""
    found = text
    for word in text.replace(MASK, " ").split():
        padded = word + "=" * (-len(word) % 4)
        for decode in (base64.b64decode, base64.urlsafe_b64decode):
            try:
                found += decode(padded).decode(errors="replace")
            except ValueError:
                continue
    return "ub4dor" in found or "plus" in found


@pytest.mark.parametrize("secret", ['quo"ted', "back\\slash", "two\nlines", 'it\'s "both"'])
def test_a_learned_secret_is_found_in_json_within_json(secret: str) -> None:
    redactor = Redactor(keys=(), values=[secret], shapes=False)
    once = json.dumps({"k": secret})
    for text in (once, json.dumps({"arguments": once}), repr([secret]), secret):
        assert redactor.text(text).count(MASK) == 1


def test_a_schema_of_a_secret_is_none() -> None:
    schema = {
        "type": "object",
        "properties": {"password": {"type": "string"}, "api_key": {"$ref": "#/x"}},
        "required": ["password"],
    }
    assert Redactor()(schema) == schema
    assert Redactor()({"tools": [{"schema": schema}]}) == {"tools": [{"schema": schema}]}
    assert Redactor()({"properties": {"password": "x", "secret": {"a": "b"}}}) == {
        "properties": {"password": MASK, "secret": {"a": MASK}}
    }
    assert Redactor()({"secret": {"properties": {"password": {"type": "x"}}}}) == {
        "secret": {"properties": {"password": {"type": MASK}}}
    }


def test_the_longer_of_two_learned_secrets_goes_first() -> None:
    assert Redactor(values=["abcd", "abcdefgh"]).text("abcdefgh abcd") == f"{MASK} {MASK}"


@pytest.mark.parametrize("value", ["", "abc", "   x   ", None, 12345])
def test_a_value_that_would_be_found_everywhere_is_refused(value: Any) -> None:
    with pytest.raises(InvalidValue, match="4 characters"):
        Redactor().learn(value)


@given(
    st.text(min_size=4).filter(lambda s: len(s.strip()) >= 4 and s not in MASK),
    st.text(),
    st.text(),
)
def test_a_learned_secret_never_gets_through(secret: str, before: str, after: str) -> None:
    redactor = Redactor(values=[secret], replacement="#")
    for value in (before + secret + after, {"a": [secret]}, {secret: 1}, ValueError(secret)):
        assert secret not in str(redactor(value)).replace("ValueError", "")


@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats(allow_nan=False)
        | st.text(alphabet="abc xyz."),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(alphabet="abc"), inner),
    )
)
def test_what_holds_no_secret_comes_out_equal(value: Any) -> None:
    assert Redactor()(value) == value


def test_every_hit_is_told_with_its_rule_and_its_place() -> None:
    hits: list[tuple[str, str]] = []
    redactor = Redactor(values=["hunter2"], on_hit=lambda *hit: hits.append(hit))
    redactor(
        {
            "a": [{"password": "x"}],
            "b": "hunter2 and hunter2",
            "c": ("db://u:p@h", "Bearer xyz"),
            "d": {"e": "ghp_0123456789abcdefghijABCDEFGHIJ456789", "f": "token=x"},
        }
    )
    assert hits == [
        ("key", "a[0].password"),
        ("value", "b"),
        ("value", "b"),
        ("url", "c[0]"),
        ("bearer", "c[1]"),
        ("github", "d.e"),
        ("key", "d.f"),
    ]


def test_another_replacement() -> None:
    redactor = Redactor(values=["hunter2"], replacement="***")
    assert redactor({"password": "x", "t": "hunter2"}) == {"password": "***", "t": "***"}


# Units that, repeated, would take a careless pattern forever.
HOSTILE = [
    *("a", "a-", "a=", 'a="', 'password="', 'password=\\"', "password='\\'", '\\"', "\\", "--"),
    *("://", "a://b:c/", "a://b:c@", "://a:", "https://a@", "-----BEGIN PRIVATE KEY-----", "-"),
    *("-----BEGIN ", "eyJ", "eyJ-", "eyJaaaaaa.", "sk-", "sk-a", "sk-1", "--a ", "Bearer "),
    *("basic  ", "ghp_", "xoxb-", "AKIA", "cookie: a", "password: ", " ", "\n", "'\"", "A1"),
]


@pytest.mark.timeout(30)
@pytest.mark.parametrize(
    ("lead", "unit"),
    [
        *(("", unit) for unit in HOSTILE),
        *(('password="', unit) for unit in ('\\"', "\\", "a=", "a")),
        *(("https://a:", unit) for unit in ("/", "a", ":", "a/")),
    ],
)
def test_much_of_anything_takes_time_that_grows_with_its_length(lead: str, unit: str) -> None:
    # A pattern that goes back over all of it takes minutes: the time limit is the test.
    text = lead + unit * (100_000 // len(unit))
    assert isinstance(Redactor(values=["hunter2"]).text(text), str)
