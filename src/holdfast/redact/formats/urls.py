"""Secrets in addresses: the password of a user, a token in the user's place, signatures and keys in the
query, and the last part of a webhook's path."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..names import listed
from ..spans import Span, shaped, shapes
from ..values import NO_SECRET, Looks, looks, random

# ruff: noqa: E501 - a pattern is easier to read in one piece

_ADDRESS = re.compile(r"://([^\s/?#\"'<>`]*+)")
_SLASHED = re.compile(r"[/?#][^\s\"'<>@]{0,256}+@(?=[\w.\[-])")

_NAMES = "|".join(
    listed(
        """
sig signature Signature X-Amz-Signature X-Amz-Credential X-Amz-Security-Token X-Goog-Signature
X-Goog-Credential auth hmac code ticket assertion SAMLResponse SAMLRequest Policy Key-Pair-Id hash
hdnts hdnea Expires-Signature sas client_assertion code_verifier state_token magic otp_token
x-signature AWSAccessKeyId GoogleAccessId OSSAccessKeyId q-signature tk wstoken ott invite
"""
    )
)
_QUERY = re.compile(rf"(?:[?&;]|%3[Ff]|%26)(?:amp;)?({_NAMES})=([^\s&\"'<>#\[\]\\;]{{12,}}+)")
_KEY = re.compile(r"[?&](?:key|apikey|appid|u|t|k|s)=([^\s&\"'<>#\[\]\\]{20,}+)")
_HOOKS = shapes(
    ("webhook", "slack.com", r"hooks\.slack\.com/(?:services|workflows|triggers)/([\w/-]{8,}+)"),
    ("webhook", "webhooks/", r"discord(?:app)?\.com/api/(?:v\d{1,2}/)?webhooks/(\d{5,20}/[\w-]++)"),
    (
        "webhook",
        "office",
        r"(?:webhook\.office\.com|outlook\.office(?:365)?\.com/webhook)/(\S{20,}+)",
    ),
    ("webhook", "telegram", r"api\.telegram\.org/(?:file/)?bot(\d{6,12}:[\w-]{20,}+)"),
    ("webhook", "zapier", r"hooks\.zapier\.com/hooks/(?:catch|standard)/(\d{3,12}/\w{5,}+)"),
    ("webhook", "/hook/", r"(?:feishu\.cn|larksuite\.com)/open-apis/bot/v2/hook/([\w-]{16,}+)"),
    ("webhook", "/ical/", r"/calendar/ical/[^\s/]{1,128}/(private-[0-9a-f]{16,}+)"),
    ("webhook", "hc-ping", r"hc-ping\.com/([0-9a-f-]{36}|[\w-]{22}/[\w-]{1,64})"),
    ("webhook", "ifttt", r"maker\.ifttt\.com/trigger/[\w-]{1,64}/(?:json/)?with/key/([\w-]{8,}+)"),
)
# A part of a path that is named like a secret, or leads to one.
_PATH = re.compile(
    r"/(?:hooks?|webhooks?|incoming|token|tokens|key|secret|reset|reset-password|password-reset|confirm"
    r"|verify|activate|magic|magic-link|invite|invitation|unsubscribe|private|signed|share|login)"
    r"/([\w.~=-]{16,}+)"
)
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_RESOURCES = {"hook", "hooks", "webhook", "webhooks", "token", "tokens", "key", "secret", "private"}
_DSNS = shapes(
    ("dsn", "@tcp(|@unix(", r"(?<![\w.-])[\w.-]{1,64}:([^\s@]{1,256})@(?:tcp|unix)\("),
    ("dsn", "jdbc:oracle", r"jdbc:oracle:\w{1,8}:[^/\s]{1,64}/([^@\s]{1,256})@"),
    (
        "dsn",
        "sqlplus|expdp|impdp|exp |imp |sqlldr|rman target",
        r"(?:sqlplus|expdp|impdp|exp|imp|sqlldr|rman target)\s{1,4}(?:-\w\s{1,4})?[\w$]{1,64}/([^@\s/]{1,128})@",
    ),
)


def urls(text: str) -> Iterator[Span]:
    """What is secret in the addresses of a text."""
    if "://" in text:
        for found in _ADDRESS.finditer(text):
            start, end = found.span(1)
            lead = text[max(0, found.start() - 5) : found.start()].lower()
            secret = _credentials(text, start, end, web=lead.endswith(("http", "https")))
            if secret is not None and looks(text[slice(*secret)]) not in NO_SECRET:
                yield Span(*secret, "url")
    if "/" in text:
        yield from shaped(text, _HOOKS)
        for found in _PATH.finditer(text):
            if _is_token(found):
                yield Span(*found.span(1), "webhook")
    if "=" in text:
        yield from _query(text)
    for span in shaped(text, _DSNS) if "@" in text else ():
        if looks(text[span.start : span.end]) not in NO_SECRET:
            yield span


def _is_token(found: re.Match[str]) -> bool:
    """Whether a part of a path is a token: random, and not the id of a resource."""
    if _UUID.fullmatch(found[1]) and found[0].split("/")[1] in _RESOURCES:
        return False
    return random(found[1]) and any(c.isdigit() for c in found[1])


def _query(text: str) -> Iterator[Span]:
    for found in _QUERY.finditer(text):
        if looks(found[2]) not in NO_SECRET and any(c.isdigit() for c in found[2]):
            yield Span(*found.span(2), "query")
    if "?" in text or "&" in text:
        for found in _KEY.finditer(text):
            if random(found[1]):
                yield Span(*found.span(1), "query")


def _credentials(text: str, start: int, end: int, *, web: bool) -> tuple[int, int] | None:
    """Where the secret of an address stands, whose authority goes from `start` to `end`."""
    if "@" not in text[start:end]:
        # A password with an unescaped slash looks like a host, its port and a path.
        port = text.find(":", start, end)
        if port < 0 or text[port + 1 : end].isdigit() or not (more := _SLASHED.match(text, end)):
            return None
        end = more.end()
    at = text.rindex("@", start, end)
    colon = text.find(":", start, at)
    if 0 <= colon < at - 1:
        return colon + 1, at
    name_end = at if colon < 0 else colon
    # A token in the place of the user.
    alone = (
        name_end > start and (web or colon >= 0) and looks(text[start:name_end]) is not Looks.WORD
    )
    return (start, name_end) if alone else None
