"""Long texts, blobs, and texts that are made to be slow."""

from __future__ import annotations

import base64
import json

import pytest

from holdfast.bundle.redaction.detector import OVERLAP, WINDOW, detector
from holdfast.bundle.redaction.sanitizer import LARGEST
from holdfast.bundle.redaction.scrub import Scrub, ScrubConfig

KEY = "gh" + "p_" + "0123456789abcdefghijABCDEFGHIJ456789"
LINE = "a log line with words, key=value pairs and a token budget of 12\n"


@pytest.mark.parity("harn-bundle", 43)
@pytest.mark.parametrize("at", [0, 256 << 10, WINDOW - 20, 2 * (WINDOW - OVERLAP) - 10, 1 << 20])
def test_a_secret_is_found_wherever_it_is_in_a_long_text(at: int) -> None:
    text = (LINE * (1 + at // len(LINE)))[:at]
    scrub = Scrub("sanitized")
    assert scrub.text(f"{text} {KEY} {LINE}", "$") == f"{text} [redacted:api_key:1] {LINE}"


@pytest.mark.parity("harn-bundle", 43)
def test_the_detector_looks_at_five_mebibytes_about_once() -> None:
    text = (LINE * (1 + (5 << 20) // len(LINE)))[: 5 << 20]
    found = detector()
    assert found is not None
    assert list(found(text)) == []
    assert len(text) <= found.looked <= len(text) * (1 + 2 * OVERLAP / WINDOW)


def test_a_secret_of_the_detector_across_the_edge_of_a_window_is_found_whole() -> None:
    found = detector()
    assert found is not None
    for at in range(WINDOW - 60, WINDOW + 10, 7):
        text = "x " * (at // 2) + KEY + " y" * 100
        spans = list(found(text))
        assert {text[span.start : span.end] for span in spans} == {KEY}


@pytest.mark.parametrize(
    "unit",
    [
        *(
            "key" + " " * 50,
            "cl_key ",
            "sk-",
            "xoxb-1-",
            "//",
            "AKIA",
            "pypi-",
            "SG.a",
            "1:",
            "M" * 24,
        ),
        *(
            "/home/",
            "/tmp/a ",
            "C:\\",
            "\\\\a\\",
            "file:///",
            "~a/",
            "%2Fhome",
            "a@",
            "a@a.",
            "+1 ",
        ),
        *(
            "born ",
            "address: ",
            "1.2.3.",
            "a:b:",
            "DE89 ",
            "0x",
            "Mr. A ",
            "4111 ",
            "{",
            '{"a":',
            "QUJD",
        ),
        *("password: |\n  ", "<a>", "$6$", "mysql -", "A=1\n", "Private-Lines: 1\nA"),
    ],
)
def test_much_of_anything_takes_time_that_grows_with_its_length(unit: str) -> None:
    # A pattern that goes back over all of it takes hours: the suite's limit is the test.
    text = unit * (100_000 // len(unit))
    scrub = Scrub("sanitized", ScrubConfig(personal=("all",), people=("Ann Lee",)))
    assert isinstance(scrub.text(text, "$"), str)


def test_a_private_key_of_any_length_is_one_hit() -> None:
    body = "\n".join(["MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7" * 2] * 4000)
    text = "a -----BEGIN PRIVATE" + f" KEY-----\n{body}\n-----END PRIVATE KEY----- b"
    scrub = Scrub("sanitized")
    assert scrub.text(text, "$") == "a [redacted:private_key:1] b"
    assert scrub.manifest().totals == {"private_key": 1}


def test_blobs_that_are_texts_are_scrubbed_and_others_left_out() -> None:
    scrub = Scrub("sanitized")
    assert scrub.blob(b"plain \xc3\xbc", "$") == b"plain \xc3\xbc"
    assert scrub.blob(f"a {KEY}".encode(), "$") == b"a [redacted:api_key:1]"
    wide = scrub.blob(f"a {KEY} ü".encode("utf-16"), "$")
    assert wide is not None
    assert wide.decode("utf-16") == "a [redacted:api_key:1] ü"
    assert scrub.blob(b"\x89PNG\r\n\x1a\n\0\0", "$.blobs[3]") is None
    assert scrub.blob(b"a" * (LARGEST + 1), "$.blobs[4]") is None
    assert scrub.manifest().totals["binary"] == 2


def test_a_binary_blob_is_kept_on_demand_if_nothing_is_found_in_it() -> None:
    scrub = Scrub("sanitized", ScrubConfig(binary=True, secrets=("hunter2!",)))
    assert scrub.blob(b"\x89PNG\0\xff", "$") == b"\x89PNG\0\xff"
    assert scrub.blob(b"\x89PNG\0\xffhunter2!", "$") is None
    assert scrub.blob(b"\x89PNG\0\xff " + KEY.encode(), "$") is None


def test_json_within_a_text_is_looked_through_as_what_it_is() -> None:
    scrub = Scrub("sanitized")
    inner = {"headers": [["Cookie", "a=b"], ["Accept", "x"]], "tokens": ["t1"], "n": 1}
    kept = json.loads(scrub.text(json.dumps(inner), "$"))
    assert kept["headers"] == [["Cookie", "[redacted:secret:1]"], ["Accept", "x"]]
    assert kept["tokens"] == ["[redacted:secret:2]"]
    lines = "\n".join(json.dumps({"secret": [word]}) for word in ("one", "two"))
    assert [json.loads(line) for line in scrub.text(lines, "$").split("\n")] == [
        {"secret": ["[redacted:secret:3]"]},
        {"secret": ["[redacted:secret:4]"]},
    ]
    text = json.dumps({"password": ["x"], "a": "\ud800"})
    assert json.loads(scrub.text(text, "$"))["a"] == "\ud800"


def test_base64_is_looked_into() -> None:
    scrub = Scrub("sanitized")
    hidden = base64.b64encode(f"x {KEY}".encode()).decode()
    assert scrub.text(f"data:text/plain;base64,{hidden}", "$") == (
        "data:text/plain;base64,[redacted:base64:1]"
    )


def test_headers_and_environments_in_all_their_shapes() -> None:
    value = {
        "headers": {"Authorization": "Digest a", "Set-Cookie": ["a=1", "b=2"], "Accept": "x"},
        "rawHeaders": ["Host", "h", "Cookie", "a=b", "Accept", "x"],
        "env": [{"name": "API_KEY", "value": "x"}, {"Name": "HOME", "Value": "y"}],
        "vars": {"PGPASSWORD": "x", "LANG": "C"},
        "pairs": [["X-Api-Key", "k"], ["Accept", "x"]],
    }
    kept = Scrub("sanitized").value(value, "$")
    assert kept["headers"]["Accept"] == "x"
    assert kept["rawHeaders"][:3] == ["Host", "h", "Cookie"]
    assert kept["rawHeaders"][4:] == ["Accept", "x"]
    assert kept["env"][1] == {"Name": "HOME", "Value": "y"}
    assert kept["vars"]["LANG"] == "C"
    left = str(kept)
    for secret in ("Digest a", "a=1", "b=2", "a=b", "'k'"):
        assert secret not in left
    assert kept["env"][0]["value"] != "x" != kept["vars"]["PGPASSWORD"]


@pytest.mark.parity("harn-bundle", 39, 40)
def test_an_address_keeps_all_but_its_secrets() -> None:
    text = Scrub("sanitized").text(
        "https://ann:pw1@h.example/a/b?page=2&access_token=t1&sort=asc&sig=0123456789abcdef#top",
        "$",
    )
    assert text == (
        "https://ann:[redacted:password:1]@h.example/a/b"
        "?page=2&access_token=[redacted:secret:1]&sort=asc&sig=[redacted:token:1]#top"
    )


NAMES = """
authorization proxy-authorization cookie set-cookie api_key apikey x-amz-security-token x-api-key
x-auth-token x-csrf-token x-xsrf-token access_token refreshToken id_token bearerToken clientSecret
password secret passwd privateKey sessionToken dbPassword my_secret userToken OPENAI_API_KEY
"""


@pytest.mark.parity("harn-bundle", 33, 34)
@pytest.mark.parametrize("name", NAMES.split())
def test_what_is_named_like_a_secret_is_taken_out(name: str) -> None:
    kept = Scrub("sanitized").value({name: "plain word", "x": {"y": [{name: "other"}]}}, "$")
    assert kept == {name: "[redacted:secret:1]", "x": {"y": [{name: "[redacted:secret:2]"}]}}
