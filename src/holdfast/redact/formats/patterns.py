"""Finds secrets that a single pattern recognizes: password hashes, webhooks, prompts, and
statements that set a password.

The table has a row for each pattern. Rows are grouped by the class under which a manifest counts
the matches, and by the check that confirms a match. To add a pattern, add a row.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeAlias

from ..names import listed
from ..spans import Span
from ..values import DIGIT, NO_SECRET, UNRESOLVED, Looks, is_plausible, looks, mixed, random

# ruff: noqa: E501 - a pattern is easier to read in one piece

Check: TypeAlias = Callable[[str], bool]


class SecretPattern(NamedTuple):
    """A pattern for a secret. The secret is the last group, or the whole match if there is no
    group. `check` confirms a match. Only strings that contain one of `marks` are searched.
    """

    rule: str
    kind: str
    check: Check | None
    marks: tuple[str, ...]
    pattern: re.Pattern[str]


def _group(
    kind: str, check: Check | None, *rows: tuple[str, str, str]
) -> tuple[SecretPattern, ...]:
    """Return the rows of one class and one check: rule, marks separated by `|`, pattern."""
    return tuple(
        SecretPattern(rule, kind, check, tuple(marks.split("|")), re.compile(pattern))
        for rule, marks, pattern in rows
    )


def _is_literal(value: str) -> bool:
    return looks(value) not in UNRESOLVED


def _is_value(value: str) -> bool:
    return looks(value) not in NO_SECRET


def _is_stated(value: str) -> bool:
    """Return whether a value that the text describes as a password counts as a password. Names and
    references do not.
    """
    return looks(value) not in NO_SECRET | {Looks.NAME}


def _is_likely(value: str) -> bool:
    """Return whether a value without a clear description in the text looks like a secret."""
    return _is_stated(value) and (looks(value) is Looks.RANDOM or mixed(value))


def _is_signature(value: str) -> bool:
    return looks(value) not in NO_SECRET and DIGIT.search(value) is not None


def _is_path_token(value: str) -> bool:
    return random(value) and DIGIT.search(value) is not None


def _is_grouped_code(code: str) -> bool:
    """Return whether a value is a code in groups of characters, such as a recovery code. Groups of
    capital letters must contain digits. Groups of small letters may be words, unless two of them
    mix letters and digits.
    """
    if code.isupper():
        return DIGIT.search(code) is not None
    groups = [group for group in code.split() if group.isalnum()]
    return sum(not group.isalpha() and not group.isdigit() for group in groups) >= 2


_SIGNED = "|".join(
    listed(
        """
sig signature Signature X-Amz-Signature X-Amz-Credential X-Amz-Security-Token X-Goog-Signature
X-Goog-Credential auth hmac code ticket assertion SAMLResponse SAMLRequest Policy Key-Pair-Id hash
hdnts hdnea Expires-Signature sas client_assertion code_verifier state_token magic otp_token
x-signature AWSAccessKeyId GoogleAccessId OSSAccessKeyId q-signature tk wstoken ott invite
"""
    )
)
_UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}(?![\w.~=-])"
_SQL_TEXT = r"'((?:[^'\\\r\n]|''|\\.){1,1024}+)'"

PATTERNS: tuple[SecretPattern, ...] = (
    *_group(
        "webhook",
        None,
        (
            "webhook",
            "slack.com",
            r"hooks\.slack\.com/(?:services|workflows|triggers)/([\w/-]{8,}+)",
        ),
        (
            "webhook",
            "webhooks/",
            r"discord(?:app)?\.com/api/(?:v\d{1,2}/)?webhooks/(\d{5,20}/[\w-]++)",
        ),
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
        (
            "webhook",
            "ifttt",
            r"maker\.ifttt\.com/trigger/[\w-]{1,64}/(?:json/)?with/key/([\w-]{8,}+)",
        ),
    ),
    *_group(
        "webhook",
        _is_path_token,
        # A segment of a URL path that is followed by a secret. A UUID after the name of a resource is its id.
        (
            "webhook",
            "/",
            r"/(?:(?:hooks?|webhooks?|tokens?|key|secret|private)/(?!" + _UUID + r")"
            r"|(?:incoming|reset|reset-password|password-reset|confirm|verify|activate|magic|magic-link"
            r"|invite|invitation|unsubscribe|signed|share|login)/)([\w.~=-]{16,}+)",
        ),
    ),
    *_group(
        "token",
        _is_signature,
        (
            "query",
            "=",
            rf"(?:[?&;]|%3[Ff]|%26)(?:amp;)?(?:{_SIGNED})=([^\s&\"'<>#\[\]\\;]{{12,}}+)",
        ),
    ),
    *_group(
        "token",
        random,
        ("query", "?|&", r"[?&](?:key|apikey|appid|u|t|k|s)=([^\s&\"'<>#\[\]\\]{20,}+)"),
    ),
    *_group(
        "token",
        None,
        (
            "jwt",
            "eyJ",
            r"(?<![\w-])eyJ[\w-]{5,}+\.[\w-]*+(?:\.[\w-]*+){1,3}|(?<![\w-])eyJ[\w-]{5,}+\.[\w-]{5,}+",
        ),
        ("jwt", "ZXlK", r"(?<![\w+/-])ZXlK[\w+/-]{40,}+={0,2}"),
    ),
    *_group(
        "api_key",
        None,
        (
            "aws",
            "IA",
            r"(?:AKIA|ASIA)[A-Z0-9]{16}[^\n]{0,80}?[\s\"':=,|]([A-Za-z0-9/+]{40})(?![A-Za-z0-9/+])",
        ),
        ("azure", "Q~", r"(?<![\w~.])[\w~.]{3}\dQ~[\w~.-]{31,34}(?![\w~])"),
        ("azure", "SharedAccess", r"SharedAccessSignature [^\s\"']{0,256}?sig=([\w%+/=-]{16,}+)"),
    ),
    *_group(
        "private_key",
        None,
        ("ppk", "Private-Lines:", r"Private-Lines:\s{0,4}\d{1,4}\s((?:[A-Za-z0-9+/=]{1,76}\s?)++)"),
    ),
    *_group(
        "secret",
        None,
        (
            "jwk",
            "kty",
            r"[\"'](?:d|p|q|dp|dq|qi|k)\\{0,2}[\"']\s{0,4}:\s{0,4}\\{0,2}[\"']([\w-]{16,}+)",
        ),
        # A line of a cookies.txt.
        (
            "key",
            "\tTRUE\t|\tFALSE\t",
            r"(?m)^\S{1,253}\t(?:TRUE|FALSE)\t/\S{0,128}\t(?:TRUE|FALSE)\t\d{1,12}\t\S{1,128}\t(\S{6,4096})$",
        ),
        ("otp", "otpauth", r"otpauth-migration://offline\?data=([\w%+/=-]{16,}+)"),
    ),
    *_group(
        "secret",
        is_plausible,
        # Languages without spaces between words.
        (
            "key",
            "密|口令|パ|暗|비|암",
            r"(?:密码|密碼|口令|パスワード|暗証番号|비밀번호|암호)(?:是|为|為|は|는|은)?[:：]?\s?[「『\"']?([!-~]{6,64})",
        ),
        (
            "key",
            " to log| to sign",
            r"(?i:use|try|enter|type) [\"'“„]?([^\s\"'”“]{6,64})[\"'”“]? to (?:log|sign)",
        ),
    ),
    *_group(
        "secret",
        _is_grouped_code,
        ("otp", " ", r"[A-Z2-7]{4}(?<![A-Za-z0-9]....)(?:[ -][A-Z2-7]{4}){3,}+(?![A-Za-z0-9])"),
        ("otp", " ", r"[ ]([a-z0-9]{4}(?:[ ][a-z0-9]{4}){3,15}+)(?![\w-])"),
    ),
    *_group(
        "secret",
        _is_stated,
        (
            "otp",
            "code",
            r"code(?:(?<=nter the code)|(?<=nter this code)|(?<=nter your code)|(?<=nter code)|(?<=cation code)"
            r"|(?<=urity code)|(?<=mation code)|(?<=ogin code)|(?<=time code)):? (?:is )?(\d{3}[ -]?\d{3}|\d{4,8})(?![\w-])",
        ),
        ("otp", "manually", r"manually:\s{1,4}([a-z0-9]{4}(?:[ ][a-z0-9]{4}){3,15})(?![\w-])"),
        ("otp", "oathtool", r"oathtool [^\r\n]{0,256}\r?\n(\d{6,8})(?=\s|\Z)"),
    ),
    *_group(
        "password",
        None,
        ("wifi", "WIFI:", r"WIFI:(?:[^;\s]{0,64};){0,4}P:([^;\r\n]{4,64});"),
        (
            "crypt",
            "$",
            r"\$(?:1|2[abxy]?|5|6|7|y|apr1|argon2(?:id|i|d)|scrypt|pbkdf2(?:-sha\d+)?|P|H|sha1|md5)\$[\w./+=,$-]{8,}+",
        ),
        ("crypt", "pbkdf2_", r"pbkdf2_sha\d{1,3}\$\d{3,8}\$[\w./+=-]{4,64}\$[\w./+=-]{16,}+"),
        ("crypt", "SCRAM-", r"SCRAM-SHA-\d{1,3}\$\d{3,6}:[\w+/=]{8,64}\$[\w+/=:]{20,}+"),
        ("crypt", "{", r"\{(?:SSHA|SHA|SMD5|MD5|CRYPT|SSHA512|SSHA256|PBKDF2)\}[\w+/=$.]{16,}+"),
        ("crypt", "*", r"\*(?<![\w*].)[0-9A-F]{40}(?![0-9A-F])"),
        ("crypt", ":::", r"(?m)^[^\s:]{1,64}:\d{1,6}:([0-9a-fA-F]{32}:[0-9a-fA-F]{32}):::"),
        ("crypt", "md5", r"(?<!\w)md5[0-9a-f]{32}(?![0-9a-f])"),
        ("pgpass", ":", r"(?m):(?<=[\w.*-]:)(?:\d{4,5}|\*):[^:\s]{1,64}:[^:\s]{1,64}:(\S++)$"),
    ),
    *_group(
        "password",
        _is_literal,
        (
            "sql",
            "PASSWORD|DENTIFIED|dentified|password '|password='|password = '",
            r"(?i)\b(?:identified\s{1,4}(?:with\s{1,4}[\w\"']{1,32}\s{1,4})?(?:by|as)\s{1,4}(?:password\s{1,4}|values\s{1,4})?"
            r"|(?:(?-i:PASSWORD)|(?:encrypted|unencrypted|with|user|role|login)\s{1,4}password)(?:\s{1,4}|\s{0,4}=\s{0,4}|\()"
            r"|set\s{1,4}password\s{1,4}(?:for\s{1,4}[\w'\"@.%`-]{1,128}\s{0,4})?=\s{0,4}(?:password\()?)"
            rf"(?:[NE]?{_SQL_TEXT}|(?<=by )\"([^\"\r\n]{{1,1024}})\"|(?<=by )(?!random|password)([^\s;'\"(]{{4,128}}))",
        ),
        (
            "sql",
            "OPTIONS|options",
            rf"(?i)options\s{{0,4}}\([^()]{{0,512}}?\bpassword\s{{1,4}}{_SQL_TEXT}",
        ),
    ),
    *_group(
        "password",
        _is_value,
        ("dsn", "@tcp(|@unix(", r"(?<![\w.-])[\w.-]{1,64}:([^\s@]{1,256})@(?:tcp|unix)\("),
        ("dsn", "jdbc:oracle", r"jdbc:oracle:\w{1,8}:[^/\s]{1,64}/([^@\s]{1,256})@"),
        (
            "dsn",
            "sqlplus|expdp|impdp|exp |imp |sqlldr|rman target",
            r"(?:sqlplus|expdp|impdp|exp|imp|sqlldr|rman target)\s{1,4}(?:-\w\s{1,4})?[\w$]{1,64}/([^@\s/]{1,128})@",
        ),
    ),
    *_group(
        "password",
        _is_stated,
        (
            "sql",
            "sp_add",
            r"\bsp_add(?:login|user)\s{1,4}(?:@\w+\s?=\s?)?N?'[^']{1,64}'\s?,\s?(?:@\w+\s?=\s?)?N?'([^']{1,128})'",
        ),
        (
            "redis-acl",
            "SETUSER|setuser",
            r"(?i:acl setuser) \S{1,64} [^\r\n]{0,128}?>([^\s\"']{4,256})",
        ),
        (
            "prompt",
            "nter ",
            r"nter (?:[\w'’-]{1,16} ){0,3}(?i:pass(?:phrase|word))[^\r\n:]{0,80}: ?([^\s][^\r\n]{3,128})(?=\r?\n|\Z)",
        ),
        (
            "expect",
            "send ",
            r"assword[^\r\n]{0,8}\r?\n\s{0,16}(?:exp_)?send (?:-- )?[\"{]([^\"\\\r\n{}]{4,128})",
        ),
        ("snmp", "community ", r"(?:snmp-server|\br[ow])[ ]?community ([^\s\"']{4,64})"),
        ("snmp", "createUser", r"createUser \S{1,64} \w{2,8} [\"']?([^\s\"']{4,64})"),
        (
            "snmp",
            "createUser",
            r"createUser [^\r\n]{1,128} (?:AES|DES)\w{0,4} [\"']?([^\s\"']{4,64})",
        ),
        (
            "radius",
            "-server",
            r"(?:tacacs|radius)-server [^\r\n]{0,64} key (?:\d )?([^\s\"']{4,64})",
        ),
        ("login", "auth ", r"(?m)\bauth [\w.-]{1,32}:([^\s\"':]{4,128})\r?$"),
        (
            "given",
            "echo |printf ",
            r"(?:echo|printf)[ ](?:-\w{1,4}[ ])?[\"']?([^\s\"'|$]{4,256})[\"']?[ ]{0,2}\|[ ]{0,2}"
            r"(?:sudo -S|docker login|podman login|(?:sudo[ ])?passwd|kinit|cryptsetup|helm registry|skopeo login|oras login)",
        ),
        (
            "output",
            "pass show|secret-tool|find-generic|find-internet|get-parameter|versions access|kv get|op read|pwgen|rand -",
            r"(?m)^[^\n]{0,60}?[$#>%] [^\n]{0,200}?(?:pass show|secret-tool lookup|find-(?:generic|internet)-password"
            r"|get-parameter[^\n]{0,160}--with-decryption|secrets versions access|kv get[^\n]{0,80}-field|op read|pwgen"
            r"|openssl rand -(?:hex|base64))[^\n]{0,200}\n([^\s{$#>%][^\r\n]{3,512})",
        ),
        (
            "passphrase",
            "assphrase",
            r"assphrase[^\r\n:]{0,40}?[:=] (?!must|should|can|may|will|requir|not|the |an? |to |for |is )"
            r"((?:[^\s.,;:\"']{1,24} ){2,7}[^\s.,;:\"']{1,24})[.]?(?=\r?\n|\Z)",
        ),
        ("imap", "LOGIN ", r"\bLOGIN (?!PASSWORD)[^\s\"]{1,64} \"?([^\s\"]{4,128})"),
        ("ftp", "PASS ", r"(?m)(?:^|[>:] ?|quote )PASS ([^\s]{4,128})\r?$"),
        ("poetry", "http-basic.", r"config http-basic\.\S{1,64} \S{1,64} ([^\s]{4,256})"),
        (
            "router",
            "line vty|isakmp|neighbor |enable secret|password-encryption|snmp-server",
            r"(?m)^[ \t]{0,8}(?:enable |neighbor \S{1,40} |username \S{1,40} (?:privilege \d{1,2} )?|ip ftp )?"
            r"(?:password|secret) (?:\d )?([^\s]{4,64})\r?$",
        ),
        ("router", "isakmp", r"isakmp key (?:\d )?([^\s]{4,64}) "),
        ("router", "message-digest-key", r"message-digest-key \d{1,3} md5 (?:\d )?([^\s]{4,64})"),
        ("router", "radius server", r"(?m)^[ \t]{1,8}key (?:\d )?([^\s]{4,64})\r?$"),
        (
            "login",
            "@",
            r"@(?<=[\w+-]@)[\w-]{1,64}(?:\.[\w-]{1,64}){1,4}:(?=[^\s]*[a-zA-Z])(?=[^\s]*\d)([^\s:/@\"'<>,;]{6,64})(?=[\s\"'<>,;]|\Z)",
        ),
        (
            "chpasswd",
            "chpasswd",
            r"[\w.-]{1,64}:([^\s\"'|:]{4,256})[\"']?[ ]{0,4}\|[ ]{0,4}(?:sudo[ ])?chpasswd",
        ),
        (
            "netrc",
            "password",
            r"login(?<!\w.....)\s{1,8}\S{1,256}\s{1,8}(?:account\s{1,8}\S{1,64}\s{1,8})?password\s{1,8}(\S++)",
        ),
        (
            "net",
            "/user:",
            r"(?i:\bnet[ ]use\b)[^\r\n]{0,128}?\\\\[^\s]{1,128}[ ]([^\s/*][^\s]{3,128})[ ]/user:",
        ),
        (
            "net",
            "/user:",
            r"(?i:\bnet[ ]use\b)[^\r\n]{0,160}?/user:\S{1,64}[ ]([^\s/*][^\s]{3,128})",
        ),
        (
            "net",
            "net user|NET USER",
            r"(?i:\bnet[ ]user[ ])[\w.-]{1,64}[ ]([^\s/*][^\s]{3,128})[ ]{0,2}(?:/\w|$|\n)",
        ),
        (
            "configure",
            " set ",
            r"\b(?:configure|config)[ ]set[ ][\w.-]{0,64}(?:secret|token|key|password|passwd|credential)"
            r"[\w.-]{0,32}[ ][\"']?([^\s\"']{4,1024})",
        ),
        (
            "printenv",
            "printenv|echo",
            r"(?m)^[^\n]{0,32}?(?:printenv[ ]|echo[ ]\"?\$\{?)\w{0,64}(?i:PASS(?:WORD)?|SECRET|TOKEN|KEY|PWD|PAT|CREDENTIALS?)"
            r"\}?\"?[ ]{0,2}\r?\n([^\s$#>][^\s]{5,1024})\r?(?:\n|\Z)",
        ),
    ),
    *_group(
        "password",
        _is_likely,
        ("printed", "New value", r"New value: ([^\s]{8,128})"),
        (
            "redis",
            "AUTH ",
            r"(?:^|[>\s])AUTH[ ](?:default[ ]|\w{1,32}[ ])?([^\s\"']{6,256})[ ]{0,2}(?:$|\n)",
        ),
        (
            "redis",
            "onfig set|ONFIG SET",
            r"(?i:config set (?:requirepass|masterauth))[ ][\"']?([^\s\"']{4,256})",
        ),
        (
            "shell",
            "SecureString|securestring",
            r"(?i:convertto-securestring)[ ](?:-string[ ])?[\"']([^\"'\r\n]{4,256})[\"']",
        ),
        (
            "shell",
            "openssl passwd",
            r"openssl passwd (?:-[\w-]{1,16} (?:[\w./]{1,16} )??){0,4}([^\s\"')-][^\s\"')]{3,128})",
        ),
        ("shell", "pass:", r"(?<![\w-])pass:([^\s\"'`,;)\]]{4,256})"),
        (
            "shell",
            "echo |printf ",
            r"(?:echo|printf)[ ](?:-\w{1,4}[ ])?[\"']?([^\s\"'|]{6,256})[\"']?[ ]{0,2}\|[ ]{0,2}(?:sudo[ ])?"
            r"(?:cryptsetup|sudo -S|docker login|podman login|passwd|kinit|gpg|su\b|openssl enc|base64"
            r"|smbclient|helm registry|xargs|tee|pass\b|vault|gh auth|gh secret|ssh-add|veracrypt|restic"
            r"|borg|skopeo|oras)",
        ),
        ("shell", "<<<", r"<<<[ ]{0,2}[\"']?([^\s\"'$][^\s\"']{5,255})"),
    ),
)
# The class of each rule, under which a manifest counts matches; first the rules of other modules.
# All rules that are not listed belong to vendors, and their class is `api_key`.
CLASSES = {
    **dict.fromkeys(("value", "key", "kubernetes", "license", "unknown"), "secret"),
    **dict.fromkeys(("url", "curl", "shell", "sql", "basic"), "password"),
    **dict.fromkeys(("bearer", "paseto"), "token"),
    **dict.fromkeys(("private-key", "age"), "private_key"),
    "base64": "base64",
    **{row.rule: row.kind for row in PATTERNS},
}


def patterns(text: str) -> Iterator[Span]:
    """Find secrets with the patterns of the table."""
    for rule, _, check, marks, pattern in PATTERNS:
        for mark in marks:
            if mark in text:
                for found in pattern.finditer(text):
                    group = found.lastindex or 0
                    if check is None or check(found[group]):
                        yield Span(*found.span(group), rule)
                break
