"""Finds tokens and API keys of vendors by their documented formats. `FORMATS` has one line per
format.

A line has the name of a rule, under which matches are counted, and the format of the token. In a
format, `{a36}` is 36 characters of the class `a`, `{a36+}` is 36 or more, `(x|y)` is either, and
everything else is literal.

    a letters and digits     l the same, small letters    u the same, capitals    d digits
    h hexadecimal, small     x hexadecimal                w a, - and _            b a and + / = _ -

To add a format, add a line; the tests check that an example of each is found.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

from .spans import Bounds, Span, trie

CHARACTERS = {
    "a": "[A-Za-z0-9]",
    "l": "[a-z0-9]",
    "u": "[A-Z0-9]",
    "d": "[0-9]",
    "h": "[0-9a-f]",
    "x": "[0-9a-fA-F]",
    "w": r"[\w-]",
    "b": "[A-Za-z0-9+/=_-]",
}

FORMATS = """
openai         sk-{w16+}
holdfast       h(k|l)_{a40+}
github         gh(p|o|u|s|r)_{a20+}
github         github_pat_{w20+}
github         v1.{h40}
gitlab         gl(pat|dt|ft|rt|cbt|ptt|imt|oas|soat|ffct|wt|agent)-{w20+}
gitlab         glpat-{w27+}.{l9}
gitlab         glrtr-{w20+}
gitlab         GR1348941{w20+}
gitlab         _gitlab_session={h32}
slack          xox(a|b|c|d|e|o|p|r|s)-{w10+}
slack          xoxe.xox(b|p)-{w10+}
slack          xapp-{w10+}
slack          xwfp-{w16+}
aws            (AKIA|ASIA|ABIA|ACCA|A3T){u16+}
aws            amzn.mws.{x8}-{x4}-{x4}-{x4}-{x12}
aws            ABSK{b100+}
aws            (IQoJb3JpZ2lu|FwoGZXIvYXdz|AQoDYXdz){b100+}
aws            bedrock-api-key-{b24+}
google         AIza{w30+}
google         ya29.{w20+}
google         ya29.(c|d).{w20+}
google         GOCSPX-{w20+}
google         1//0{w30+}
google         AQ.Ab8{w30+}
azure          {a76}AZDO{a4}
azure          {a52}JQQJ99{a26}
stripe         (sk|rk|pk)_(live|test|prod)_{a10+}
stripe         whsec_{b20+}
anthropic      sk-ant-{w16+}
huggingface    hf_{a30+}
huggingface    api_org_{a30+}
replicate      r8_{a20+}
groq           gsk_{a20+}
xai            xai-{a20+}
perplexity     pplx-{a20+}
nvidia         nvapi-{w20+}
together       tgp_v1_{w20+}
cerebras       csk-{a20+}
fireworks      fw_{a20+}
langsmith      lsv2_(pt|sk)_{w20+}
langfuse       (pk|sk)-lf-{w20+}
jina           jina_{w20+}
tavily         tvly-{w20+}
voyage         pa-{w40+}
elevenlabs     sk_{h48}
firecrawl      fc-{h32}
pinecone       pcsk_{w20+}
openrouter     sk-or-{w16+}
npm            npm_{a36+}
pypi           pypi-{w50+}
rubygems       rubygems_{h40+}
clojars        CLOJARS_{a50+}
docker         SWMTKN-1-{l40+}-{l20+}
docker         dckr_(pat|oat)_{w20+}
nuget          oy2{l43}
cargo          cio{a32}
jfrog          AKCp{a60+}
jfrog          cmVmd{a50+}
packagist      packagist_(ouat|uct|oat|orat|ort)_{a40+}
sendgrid       SG.{w16+}.{w16+}
mailgun        key-{h32}
mailgun        {h32}-{h8}-{h8}
mailchimp      {h32}-us{d1}
mailchimp      {h32}-us{d2}
resend         re_{a8}_{a20+}
brevo          (xkeysib|xsmtpsib)-{w40+}
twilio         (SK|AC){h32}
square         (sq0csp|sq0atp|sq0idp)-{w22+}
square         EAAA{w22+}
shopify        (shpat|shpss|shpca|shppa|shpua|shptka)_{x32+}
paypal         access_token$(production|sandbox)${l16}${h32}
plaid          (access|public|link)-(production|sandbox|development)-{x8}-{x4}-{x4}-{x4}-{x12}
flutterwave    FLW(SECK|PUBK)(_TEST|)-{a12+}-X
flutterwave    FLWSECK_TEST{h12+}
paystack       sk_(live|test)_{h40}
razorpay       rzp_(live|test)_{a14+}
shippo         shippo_(live|test)_{x40}
easypost       (EZAK|EZTK){a50+}
duffel         duffel_(test|live)_{b40+}
adyen          AQE{b60+}
mollie         (live|test)_{a30}
gocardless     (live|sandbox)_{w40}
checkout       (sk|pk)_(sbox_|){l20+}
digitalocean   do(o|p|r)_v1_{h40+}
digitalocean   DO00{u16}
heroku         HRKU-{w30+}
fly            (fo1|fm1a|fm1r|fm2)_{b30+}
fly            FlyV1 fm2_{b30+}
netlify        nf(p|c|o|u|b)_{w30+}
vercel         (vcp|vck|vci|vca|vcr|vercel)_{w24+}
cloudflare     cf(ut|k|at)_{a40+}
cloudflare     v1.0-{h24}-{h100+}
alibaba        LTAI{a12+}
tencent        AKID{a32}
yandex         (t1.|AQVN){w30+}
yandex         y0_{w30+}
octopus        API-{u26+}
upcloud        ucat_{a26+}
scaleway       SCW{u17}
render         rnd_{a24+}
scalingo       tk-us-{w40+}
supabase       sbp_{a20+}
supabase       sb_secret_{w20+}
planetscale    pscale_(tkn|pw|oauth)_{w20+}
neon           napi_{l40+}
neon           npg_{a12+}
databricks     (dapi|dose|dkea){h32}
snowflake      ver:1-hint:{b20+}
clickhouse     4b1d{a38}
mongodb        mdb_sa_(sk|id)_{w20+}
aiven          AVNS_{w16+}
turso          tursoa_{w20+}
confluent      cflt{b50+}
airtable       pat{a14}.{h64}
newrelic       (NRAK|NRJS|NRII|NRAA|NRIQ|NRRA|NRSP|NRBR)-{w16+}
newrelic       {h36}NRAL
sentry         (sntrys|sntryu|sntryi)_{b20+}
grafana        glsa_{a32}_{x8}
grafana        glc_{b20+}
grafana        eyJrIjoi{b50+}
posthog        ph(c|x|s|r|a)_{a30+}
honeycomb      hc(a|b|x|y|z|i)(ik|lk|mk|ic|lc)_{l30+}
dynatrace      dt0(c|s)(01|02|03|06|08|16).{u24}.{u30+}
logfire        pylf_v(1|2)_(us|eu|local)_{a20+}
statsig        (secret|console)-{a30+}
launchdarkly   (sdk|api|mob)-{x8}-{x4}-{x4}-{x4}-{x12}
axiom          xa(at|pt)-{x8}-{x4}-{x4}-{x4}-{x12}
checkly        cu_{h32}
atlassian      (ATATT3|ATBB|ATCTT3|ATOA|ATSTT3){b20+}
trello         ATTA{x60+}
hubspot        pat-(na1|na2|eu1|ap1)-{x8}-{x4}-{x4}-{x4}-{x12}
salesforce     00D{a12}!{b60+}
bitbucket      BBDC-{b20+}
linear         lin_(api|oauth|wh)_{a20+}
notion         ntn_{a30+}
notion         secret_{a40+}
figma          fig(d|o|u|or|oh|ur|uh)_{w20+}
asana          {d1}/{d16}:{h32}
asana          {d1}/{d16}/{d16}:{h32}
clickup        pk_{d6}_{u20+}
clickup        pk_{d8}_{u20+}
typeform       tfp_{b40+}
dropbox        sl.(B|u.){w60+}
contentful     CFPAT-{w30+}
postman        PMAK-{h24}-{h30+}
postman        PMAT-{u20+}
readme         rdme_{l40+}
figma          figd_{w30+}
discord        mfa.{w60+}
intercom       dG9rO{b40+}
segment        sgp_{a30+}
sourcegraph    sgp_{x40}
sourcegraph    sgp_(local|{x16})_{x40}
vault          hv(s|b|r).{w20+}
vault          s.{a24}
vault          b.AAAAAQ{w40+}
doppler        dp.(pt|st|ct|sa|scim|audit).{b20+}
doppler        dp.st.{l2+}.{a20+}
onepassword    ops_eyJ{b50+}
onepassword    A3-{u6}-{u6}-{u5}-{u5}-{u5}-{u5}
onepassword    A3-{u6}-{u11}-{u5}-{u5}-{u5}
infisical      st.{h24}.{h32}.{h32}
bitwarden      0.{x8}-{x4}-{x4}-{x4}-{x12}.{a30}:{b20+}
age            AGE-SECRET-KEY-1{u50+}
age            AGE-PLUGIN-{u4+}-1{u40+}
akeyless       p-{a12}:{b40+}
pulumi         pul-{h40}
terraform      {a14}.atlasv1.{w40+}
prefect        pn(u|b)_{a30+}
tailscale      tskey-{w16+}
ngrok          {a27}_{a20+}
netbird        nbp_{a30+}
openshift      sha256~{w40+}
rancher        token-{l5}:{l50+}
harness        (pat|sat).{w22}.{x24}.{a20}
circleci       CCI(PAT|PRJ)_{a20+}_{h40}
buildkite      bk(ua|at|ct|pt|aj)_{a30+}
sonar          sq(u|p|a|b)_{h40}
snyk           snyk_(uat|sat).{l8}.{b20+}
semgrep        sgs_{a30+}
octopus        API-{u26}
infracost      ico-{a32}
jenkins        11{h32}
depot          depot_(org|project)_{h40+}
facebook       EAA(A|B|C|D|G|H|I|J|K|L|M|N|O|P|R|S|T|U|V|W|X|Y|Z){a60+}
facebook       {d15}|{w27}
firebase       {w11}:APA91b{w100+}
linkedin       AQ(U|V|W|X){w150+}
twitter        AAAAAAAAAAAAAAAAAAAAA{b40+}
twitch         oauth:{l30}
linkedin       WPL_AP{d1}.{b16+}
instagram      IG(AA|QV){b60+}
telegram       {d8}:A{w34}
telegram       {d9}:A{w34}
telegram       {d10}:A{w34}
adobe          p8e-{a30+}
intra42        s-s4t2(ud|af)-{h64}
frameio        fio-u-{w60+}
mapbox         (sk|tk).eyJ{w20+}.{w16+}
maxmind        {a6}_{a29}_mmk
settlemint     sm_(aat|pat|sat)_{a16}
clerk          sk_(test|live)_{a30+}
workos         sk_(test|live)_{b30+}
stytch         secret-(test|live)-{b30+}
descope        K2{a40+}
paseto         v(1|2|3|4).(local|public).{w20+}
fernet         gAAAAA{b40+}
bitcoin        (K|L){a51}
bitcoin        5(H|J|K){a49}
bitcoin        (xprv|yprv|zprv|tprv){a100+}
nostr          nsec1{l58}
stellar        S{u55}
ethereum       0x{h64}
"""


class TokenFormat(NamedTuple):
    """One line of `FORMATS`: the name of the rule, and the format of its tokens."""

    rule: str
    form: str


@functools.cache
def formats() -> tuple[TokenFormat, ...]:
    """Return the lines of `FORMATS`."""
    return tuple(TokenFormat(*line.split(None, 1)) for line in FORMATS.strip().split("\n"))


PIECE = re.compile(r"\{(\w)(\d+)(\+)?\}|\(([^()]*)\)")


def pattern(form: str) -> str:
    """Return the regular expression of a format."""
    out, done, open_end = [], 0, False
    for piece in PIECE.finditer(form):
        out.append(re.escape(form[done : piece.start()]))
        done = piece.end()
        if piece[4] is not None:
            either = (
                pattern(part) if "{" in part else re.escape(part) for part in piece[4].split("|")
            )
            out.append(f"(?:{'|'.join(either)})")
            continue
        kind, count, more = CHARACTERS[piece[1]], piece[2], piece[3]
        open_end = bool(more) and done == len(form)
        most = f",{int(count) * 4 + 64}" if more else ""
        out.append(f"{kind}{{{count},}}+" if open_end else f"{kind}{{{count}{most}}}")
    out.append(re.escape(form[done:]))
    return "".join(out) + ("" if open_end else "(?![A-Za-z0-9])")


def prefixes(form: str) -> tuple[str, ...]:
    """Return the strings with which a format can begin. The string is empty if the format begins
    with a class."""
    first = PIECE.search(form)
    head = form[: first.start()] if first else form
    if first is not None and first[4] is not None and (not head or "{" not in first[4]):
        return tuple(head + part for part in first[4].split("|"))
    return (head,)


Rule: TypeAlias = tuple[str, re.Pattern[str]]


class _Table(NamedTuple):
    """The compiled formats, grouped by how they are searched: formats with a prefix, which share
    one pattern; formats that contain fixed text; and all others.
    """

    prefixes: re.Pattern[str]
    by_prefix: dict[str, list[Rule]]
    by_text: list[tuple[str, str, re.Pattern[str]]]
    others: list[Rule]


# Hashes of public files.
_DIGESTS = ("sha1-", "sha256-", "sha384-", "sha512-", "sha256:", "sha512:", "h1:")
_LONG = 24  # length of the shortest format that begins with a class
_RUN = re.compile(r"(?<![A-Za-z0-9])(?:[A-Za-z0-9]{27,}+|[0-9]{8,15}(?=[:|])|[0-9](?=/[0-9]{16}))")
_INNER = re.compile(r"(?<=\})[^{}()]{3,}(?=\{)|(?<=\})[^{}()]{3,}$")


@functools.cache
def _table() -> _Table:
    by_prefix: dict[str, list[Rule]] = {}
    by_text, others = [], []
    for rule, form in formats():
        compiled = re.compile(pattern(form))
        begins = prefixes(form)
        if all(len(begin) >= 2 for begin in begins):
            for begin in begins:
                by_prefix.setdefault(begin, []).append((rule, compiled))
        elif inner := _INNER.search(form):
            whole = re.compile(rf"(?<![A-Za-z0-9]){compiled.pattern}")
            by_text.append((rule, inner[0], whole))
        else:
            others.append((rule, compiled))
    return _Table(re.compile(rf"(?<![A-Za-z0-9])(?:{trie(by_prefix)})"), by_prefix, by_text, others)


def vendors(text: str, runs: list[Bounds]) -> Iterator[Span]:
    """Find tokens of a documented format in these runs of characters."""
    table = _table()
    for low, high in runs:
        if text.startswith(_DIGESTS, low):
            continue
        done = low
        for prefix in table.prefixes.finditer(text, low, high + 1):
            if prefix.start() >= done:
                for span in _with_prefix(text, prefix, table):
                    done = max(done, span.end)
                    if _is_random(text[span.start : span.end]):
                        yield span
        for run in _RUN.finditer(text, low, high) if high - low >= _LONG else ():
            for rule, form in table.others:
                if (found := form.match(text, run.start())) and _is_random(found[0]):
                    yield Span(*found.span(), rule)
    for rule, inner, form in table.by_text if runs else ():
        if inner in text:
            yield from (Span(*found.span(), rule) for found in form.finditer(text))


def _with_prefix(text: str, prefix: re.Match[str], table: _Table) -> Iterator[Span]:
    """Find tokens whose format begins with this prefix, or with the first characters of it."""
    for size in range(len(prefix[0]), 1, -1):
        for rule, form in table.by_prefix.get(prefix[0][:size], ()):
            if found := form.match(text, prefix.start()):
                yield Span(*found.span(), rule)


def _is_random(token: str) -> bool:
    """Return whether a token is more than a prefix and a word: it has digits, or letters of both
    cases."""
    body = token[4:]
    odd = any(c.isdigit() for c in body) or len(token) > 60
    return odd or (not body.islower() and not body.isupper() and len(set(body)) > 8)
