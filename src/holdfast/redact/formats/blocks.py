"""What is a secret by its form alone: private keys in their armour, JSON Web Tokens, hashes of
passwords, tokens that no prefix tells."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator

from ..spans import Span, shaped, shapes
from ..values import DIGIT

_HEADER = r"-{4,5} ?BEGIN [A-Z0-9 ]{0,40}?PRIVATE KEY(?: BLOCK)? ?-{4,5}"
_FOOTER = r"-{4,5} ?END [A-Z0-9 ]{0,50}-{4,5}"
_BODY = r"(?:[^-]++|-(?!---[- ]{0,2}(?:END|BEGIN)))*+"
# Whole, or cut off; a header alone is a word of code or of prose.
_BLOCK = re.compile(
    rf"{_HEADER}(?:{_BODY}{_FOOTER}|"
    r"(?=[ \t\r]{0,4}(?:\n|\\[nr])"
    r"|[\s\\nrt>|\"'+,`]{0,32}(?:Proc-Type|DEK-Info|[A-Za-z0-9+/]{16,}))"
    rf"{_BODY})"
)
_SHAPES = shapes(
    (
        "jwt",
        "eyJ",
        r"(?<![\w-])eyJ[\w-]{5,}+\.[\w-]*+(?:\.[\w-]*+){1,3}|(?<![\w-])eyJ[\w-]{5,}+\.[\w-]{5,}+",
    ),
    (
        "aws",
        "IA",
        r"(?:AKIA|ASIA)[A-Z0-9]{16}[^\n]{0,80}?[\s\"':=,|]([A-Za-z0-9/+]{40})(?![A-Za-z0-9/+])",
    ),
    ("wifi", "WIFI:", r"WIFI:(?:[^;\s]{0,64};){0,4}P:([^;\r\n]{4,64});"),
    ("jwt", "ZXlK", r"(?<![\w+/-])ZXlK[\w+/-]{40,}+={0,2}"),
    ("azure", "Q~", r"(?<![\w~.])[\w~.]{3}\dQ~[\w~.-]{31,34}(?![\w~])"),
    (
        "crypt",
        "$",
        r"\$(?:1|2[abxy]?|5|6|7|y|apr1|argon2(?:id|i|d)|scrypt|pbkdf2(?:-sha\d+)?|P|H|sha1|md5)\$"
        r"[\w./+=,$-]{8,}+",
    ),
    ("crypt", "pbkdf2_", r"pbkdf2_sha\d{1,3}\$\d{3,8}\$[\w./+=-]{4,64}\$[\w./+=-]{16,}+"),
    ("crypt", "SCRAM-", r"SCRAM-SHA-\d{1,3}\$\d{3,6}:[\w+/=]{8,64}\$[\w+/=:]{20,}+"),
    ("crypt", "{", r"\{(?:SSHA|SHA|SMD5|MD5|CRYPT|SSHA512|SSHA256|PBKDF2)\}[\w+/=$.]{16,}+"),
    ("crypt", "*", r"\*(?<![\w*].)[0-9A-F]{40}(?![0-9A-F])"),
    ("crypt", ":::", r"(?m)^[^\s:]{1,64}:\d{1,6}:([0-9a-fA-F]{32}:[0-9a-fA-F]{32}):::"),
    ("ppk", "Private-Lines:", r"Private-Lines:\s{0,4}\d{1,4}\s((?:[A-Za-z0-9+/=]{1,76}\s?)++)"),
    ("pgpass", ":", r"(?m):(?<=[\w.*-]:)(?:\d{4,5}|\*):[^:\s]{1,64}:[^:\s]{1,64}:(\S++)$"),
    (
        "otp",
        " ",
        r"[A-Z2-7]{4}(?<![A-Za-z0-9]....)(?:[ -][A-Z2-7]{4}){3,}+(?![A-Za-z0-9])",
    ),
    (
        "otp",
        " ",
        r"[ ]([a-z0-9]{4}(?:[ ][a-z0-9]{4}){3,15}+)(?![\w-])",
    ),
    ("crypt", "md5", r"(?<!\w)md5[0-9a-f]{32}(?![0-9a-f])"),
    ("otp", "otpauth", r"otpauth-migration://offline\?data=([\w%+/=-]{16,}+)"),
    ("azure", "SharedAccess", r"SharedAccessSignature [^\s\"']{0,256}?sig=([\w%+/=-]{16,}+)"),
)
# Tokens without a prefix, in a long run of characters.
_IN_RUNS = re.compile(
    r"(?P<discord>[MNO](?<![\w.-].)[\w-]{23,27}\.[\w-]{6}\.[\w-]{27,38}(?![\w.-]))"
    r"|(?P<azure>[A-Za-z0-9+/](?<![\w+/-].)[A-Za-z0-9+/]{85}(?===))"
    r"|(?P<license>[A-Z0-9](?<![\w-].)[A-Z0-9]{4}-(?:[A-Z0-9]{5}-){3}[A-Z0-9]{5}(?![\w-]))"
)
_LONG = 29  # characters of the shortest of them
_DIGITS = {"otp", "license"}


def blocks(text: str, runs: list[tuple[int, int]]) -> Iterator[Span]:
    """Private keys, however long, and cut off; tokens and hashes."""
    if "BEGIN " in text and "PRIVATE KEY" in text:
        for found in _BLOCK.finditer(text):
            yield Span(*found.span(), "private-key")
    for span in shaped(text, _SHAPES):
        if span.rule not in _DIGITS or _is_drawn(text[span.start : span.end]):
            yield span
    for low, high in runs:
        token = _IN_RUNS.search(text, low, high + 2) if high - low >= _LONG else None
        if token is not None and _is_random(token):
            yield Span(*token.span(), token.lastgroup or "")


def _is_random(token: re.Match[str]) -> bool:
    if token["azure"]:  # 64 bytes; base64 of a text is none
        return not base64.b64decode(token[0] + "==").isascii()
    return DIGIT.search(token[0]) is not None


def _is_drawn(code: str) -> bool:
    """Whether a code in groups was drawn: small letters may be words without digits among them."""
    if not code.isupper():
        return (
            sum(
                group.isalnum() and not group.isalpha() and not group.isdigit()
                for group in code.split()
            )
            >= 2
        )
    return DIGIT.search(code) is not None
