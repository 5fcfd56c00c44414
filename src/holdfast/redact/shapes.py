"""What has the shape of a secret, wherever it stands: keys of known vendors, tokens, blocks.

Each shape has beginnings, one of which must be in a text before its pattern is tried. In the
patterns a run that can be long is possessive, and none can begin inside itself.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from typing import NamedTuple

from .spans import Span


class Shape(NamedTuple):
    """How the secrets of one vendor look: a beginning, and what follows it."""

    rule: str
    beginnings: tuple[str, ...]
    rest: str


_W, _A, _HEX = r"[\w-]", r"[A-Za-z0-9]", r"[0-9a-f]"
_NO_MORE = r"(?![A-Za-z0-9])"
_AWS = ("AKIA", "ASIA", "AGPA", "AIDA", "ANPA", "AROA", "AIPA", "ABIA", "ACCA")

SHAPES = (
    Shape("sk", ("sk-",), rf"(?=[A-Za-z_-]{{0,64}}\d){_W}{{16,}}+"),
    Shape("holdfast", ("hk_", "hl_"), rf"{_A}{{40,}}+"),
    Shape("github", ("ghp_", "gho_", "ghu_", "ghs_", "ghr_"), rf"{_A}{{20,}}+"),
    Shape("github", ("github_pat_",), r"\w{20,}+"),
    Shape(
        "gitlab",
        ("glpat-", "gldt-", "glft-", "glsoat-", "glrt-", "glcbt-", "glptt-", "glimt-", "gloas-"),
        rf"{_W}{{20,}}+",
    ),
    Shape("gitlab", ("glagent-", "GR1348941"), rf"{_W}{{20,}}+"),
    Shape("slack", ("xoxa-", "xoxb-", "xoxc-", "xoxd-", "xoxe-", "xoxe."), r"[\w%.-]{10,}+"),
    Shape("slack", ("xoxo-", "xoxp-", "xoxr-", "xoxs-", "xapp-"), rf"{_W}{{10,}}+"),
    Shape("aws", _AWS, rf"[0-9A-Z]{{16}}{_NO_MORE}"),
    Shape("google", ("AIza",), rf"{_W}{{35,}}+"),
    Shape("google", ("ya29.", "GOCSPX-", "1//0"), rf"{_W}{{20,}}+"),
    Shape(
        "stripe",
        ("sk_live_", "sk_test_", "rk_live_", "rk_test_", "pk_live_", "pk_test_", "whsec_"),
        rf"{_A}{{10,}}+",
    ),
    Shape("huggingface", ("hf_", "api_org_"), rf"{_A}{{30,}}+"),
    Shape("npm", ("npm_",), rf"{_A}{{36,}}+"),
    Shape("pypi", ("pypi-",), rf"{_W}{{50,}}+"),
    Shape("sendgrid", ("SG.",), rf"{_W}{{16,}}+\.{_W}{{16,}}+"),
    Shape("twilio", ("SK", "AC"), rf"{_HEX}{{32}}{_NO_MORE}"),
    Shape("square", ("sq0csp-", "sq0atp-", "sq0idp-", "EAAA"), rf"{_W}{{22,}}+"),
    Shape("shopify", ("shpat_", "shpss_", "shpca_", "shppa_"), r"[0-9a-fA-F]{32,}+"),
    Shape("digitalocean", ("dop_v1_", "doo_v1_", "dor_v1_"), rf"{_HEX}{{40,}}+"),
    Shape("doppler", ("dp.pt.", "dp.st.", "dp.ct.", "dp.sa."), r"[\w.]{20,}+"),
    Shape("databricks", ("dapi",), rf"{_HEX}{{32}}(?:-\d)?{_NO_MORE}"),
    Shape("model", ("csk-", "tgp_v1_", "gsk_", "xai-", "pplx-", "nvapi-"), rf"{_W}{{20,}}+"),
    Shape("model", ("r8_", "fw_", "lsv2_pt_", "lsv2_sk_", "pk-lf-", "jina_"), rf"{_W}{{20,}}+"),
    Shape("linear", ("lin_api_", "lin_oauth_"), rf"{_A}{{20,}}+"),
    Shape("notion", ("ntn_", "secret_"), rf"{_A}{{40,}}+"),
    Shape("figma", ("figd_", "figo_"), rf"{_W}{{20,}}+"),
    Shape("postman", ("PMAK-",), rf"{_W}{{30,}}+"),
    Shape("newrelic", ("NRAK-", "NRJS-", "NRII-"), rf"{_W}{{16,}}+"),
    Shape("sentry", ("sntrys_", "sntryu_"), r"[\w+/=.-]{20,}+"),
    Shape("grafana", ("glsa_", "glc_"), r"[\w+/=]{20,}+"),
    Shape("vault", ("hvs.", "hvb.", "hvr."), rf"{_W}{{20,}}+"),
    Shape("planetscale", ("pscale_tkn_", "pscale_pw_", "pscale_oauth_"), r"[\w.-]{20,}+"),
    Shape("supabase", ("sbp_", "sb_secret_"), rf"{_W}{{20,}}+"),
    Shape("mailgun", ("key-",), rf"{_HEX}{{32}}{_NO_MORE}"),
    Shape("docker", ("dckr_pat_", "dckr_oat_"), rf"{_W}{{20,}}+"),
    Shape("rubygems", ("rubygems_",), rf"{_HEX}{{40,}}+"),
    Shape("clojars", ("CLOJARS_",), rf"{_A}{{50,}}+"),
    Shape("atlassian", ("ATATT3", "ATBB", "ATCTT3"), r"[\w=.-]{20,}+"),
    Shape("netlify", ("nfp_", "nfc_", "nfo_"), rf"{_W}{{30,}}+"),
    Shape("heroku", ("HRKU-",), rf"{_W}{{30,}}+"),
    Shape("fly", ("FlyV1 fm2_", "fo1_", "fm2_", "fm1_"), r"[\w+/=,-]{30,}+"),
    Shape("contentful", ("CFPAT-",), rf"{_W}{{30,}}+"),
    Shape("dropbox", ("sl.B", "sl.u."), rf"{_W}{{60,}}+"),
    Shape("facebook", ("EAAC", "EAAB", "EAAG"), rf"{_A}{{60,}}+"),
    Shape("tailscale", ("tskey-",), rf"{_W}{{16,}}+"),
    Shape("pulumi", ("pul-",), rf"{_HEX}{{40}}{_NO_MORE}"),
    Shape("prefect", ("pnu_", "pnb_"), rf"{_A}{{30,}}+"),
    Shape("onepassword", ("ops_eyJ",), rf"{_W}{{50,}}+"),
    Shape("age", ("AGE-SECRET-KEY-1",), r"[0-9A-Z]{50,}+"),
    Shape("adobe", ("p8e-",), rf"{_A}{{30,}}+"),
    Shape("airtable", ("pat",), rf"{_A}{{14}}\.{_HEX}{{64}}{_NO_MORE}"),
    Shape("easypost", ("EZAK", "EZTK"), rf"{_A}{{50,}}+"),
    Shape("typeform", ("tfp_",), r"[\w.-]{40,}+"),
    Shape("brevo", ("xkeysib-", "xsmtpsib-"), rf"{_W}{{40,}}+"),
    Shape("paseto", ("v1.", "v2.", "v3.", "v4."), rf"(?:local|public)\.{_W}{{20,}}+(?:\.{_W}*+)?"),
)

_QUERY = "sig|signature|X-Amz-Signature|X-Amz-Credential|X-Goog-Signature|X-Goog-Credential"
_QUERY += "|auth|hmac|code|ticket|assertion|SAMLResponse"
# Shapes without a beginning of their own: a mark that must be in the text, and a pattern whose
# group, where it has one, is the secret.
_ODD = (
    ("jwt", "eyJ", r"(?<![\w-])eyJ[\w-]{5,}+\.[\w-]{5,}+(?:\.[\w-]*+){0,3}"),
    ("terraform", ".atlasv1.", r"(?<![A-Za-z0-9])[A-Za-z0-9]{14}\.atlasv1\.[\w-]{40,}+"),
    ("mailchimp", "-us", r"(?<![0-9A-Za-z])[0-9a-f]{32}-us\d{1,2}(?!\w)"),
    ("telegram", ":", r"(?<![\w:])\d{8,10}:[A-Za-z][\w-]{34}(?![\w-])"),
    ("discord", ".", r"(?<![\w.-])[MNO][\w-]{23,27}\.[\w-]{6}\.[\w-]{27,38}(?![\w.-])"),
    ("webhook", "hooks.slack.com/", r"hooks\.slack\.com/(?:services|workflows|triggers)/([\w/]++)"),
    ("webhook", "/api/webhooks/", r"discord(?:app)?\.com/api/webhooks/(\d{5,20}/[\w-]++)"),
    ("webhook", "webhook.office.com/", r"webhook\.office\.com/(\S{20,}+)"),
    (
        "crypt",
        "$",
        r"\$(?:1|2[abxy]?|5|6|7|y|apr1|argon2(?:id|i|d)|scrypt|pbkdf2)\$[\w./+=,$-]{8,}+",
    ),
    ("ppk", "Private-Lines:", r"Private-Lines:\s{0,4}\d{1,4}\s((?:[A-Za-z0-9+/=]{1,76}\s?)++)"),
    ("netrc", "password", r"\blogin\s{1,8}\S{1,256}\s{1,8}password\s{1,8}(\S++)"),
    ("curl", "-u", r"(?<!\S)(?:-u|--user)[ =]{1,2}[\"']?[^\s:\"']{1,128}:([^\s\"']++)"),
    ("sshpass", "sshpass", r"\bsshpass\s{1,4}-p\s{0,4}[\"']?([^\s\"']++)"),
    ("mysql", "mysql", r"\bmysql(?:dump|admin)?\s(?:[^\n|;]{0,256}?\s)??-p([^\s\"']++)"),
    ("sql", "IDENTIFIED", r"\bIDENTIFIED\s{1,4}BY\s{1,4}(?:PASSWORD\s{1,4})?'([^']++)'"),
    ("sql", "identified", r"\bidentified\s{1,4}by\s{1,4}(?:password\s{1,4})?'([^']++)'"),
    ("sql", "PASSWORD '", r"\bPASSWORD\s{1,4}'([^']++)'"),
    ("dsn", "@tcp(", r"(?<![\w.-])[\w.-]{1,64}:([^\s@]{1,256})@(?:tcp|unix)\("),
    ("dsn", "jdbc:oracle", r"jdbc:oracle:\w{1,8}:[^/\s]{1,64}/([^@\s]{1,256})@"),
    ("pgpass", ":543", r"(?m)^[\w.*-]{1,255}:543\d:[^:\s]{1,64}:[^:\s]{1,64}:(\S++)$"),
    ("query", "=", rf"[?&](?:{_QUERY})=([^\s&\"'<>#\[\]\\]{{12,}}+)"),
    ("query", "key=", r"[?&]key=([^\s&\"'<>#\[\]\\]{20,}+)"),
)
_BLOCK = re.compile(
    r"-{4,5} ?BEGIN [A-Z0-9 ]{0,40}?PRIVATE KEY(?: BLOCK)? ?-{4,5}"
    r"(?:[^-]++|-(?!---[- ]{0,2}END))*+(?:-{4,5} ?END [A-Z0-9 ]{0,50}-{4,5})?"
)
_SCHEME = re.compile(
    r"(?<![\w-])(?:(bearer)|(basic))(?:\s{1,4}|%20|\+)([\w.~+/=-]++)", re.IGNORECASE
)
_CHALLENGE = re.compile(
    r"(?:tokens?|auth|authentication|authorization|schemes?|realm|error|scope|credentials?|keys?"
    r"|of|the|an?|is|was|in|for|and|or|to|with|must|header)(?:=.*)?",
    re.IGNORECASE | re.DOTALL,
)
_ADDRESS = re.compile(r"://([^\s/?#\"'<>]*+)")
_SLASHED = re.compile(r"[/?#][^\s\"'<>@]{0,256}+@(?=[\w.\[-])")


def addresses(text: str) -> Iterator[Span]:
    """The passwords of `scheme://user:password@host`, in any scheme."""
    if "://" not in text:
        return
    for found in _ADDRESS.finditer(text):
        start, end = found.span(1)
        lead = text[max(0, found.start() - 5) : found.start()].lower()
        secret = _credentials(text, start, end, web=lead.endswith(("http", "https")))
        if secret is not None:
            yield Span(*secret, "url")


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
    alone = name_end > start and (web or colon >= 0)  # a token in the place of the user
    return (start, name_end) if alone else None


def blocks(text: str) -> Iterator[Span]:
    """Private keys in their armour, however long, and cut off."""
    if "BEGIN " in text and "PRIVATE KEY" in text:
        for found in _BLOCK.finditer(text):
            yield Span(*found.span(), "private-key")


@functools.cache
def _compiled(at: int) -> re.Pattern[str]:
    _, beginnings, rest = SHAPES[at]
    lead = "|".join(map(re.escape, beginnings))
    return re.compile(rf"(?<![A-Za-z0-9])(?:{lead}){rest}")


@functools.cache
def _odd(at: int) -> re.Pattern[str]:
    return re.compile(_ODD[at][2])


def shapes(text: str) -> Iterator[Span]:
    """What looks like the secret of a known vendor."""
    for at, shape in enumerate(SHAPES):
        if any(beginning in text for beginning in shape.beginnings):
            for found in _compiled(at).finditer(text):
                yield Span(*found.span(), shape.rule)
    for at, (rule, mark, _) in enumerate(_ODD):
        if mark in text:
            for found in _odd(at).finditer(text):
                yield Span(*found.span(found.lastindex or 0), rule)


def schemes(text: str) -> Iterator[Span]:
    """`Bearer …` and `Basic …`, but not where prose speaks of them."""
    for found in _SCHEME.finditer(text):
        bearer, basic, secret = found.groups()
        if _CHALLENGE.fullmatch(secret) or (basic and secret.isalpha() and secret[1:].islower()):
            continue
        yield Span(*found.span(3), "bearer" if bearer else "basic")
