"""Classifies values by their text alone: a reference, a placeholder, a type, a label, a word, a
password, or random characters.
"""

from __future__ import annotations

import enum
import functools
import math
import re
from collections import Counter

from .names import CJK, NOUNS, word_set, words
from .spans import only_placeholders

# ruff: noqa: E501 - a pattern is easier to read in one piece

LONGEST = 256  # characters of a value that are examined


class Looks(enum.Enum):
    """The kinds of values, ordered from empty to secret. Reviews show the value of a member as the
    reason.
    """

    EMPTY = "it is empty, or masked already"
    REFERENCE = "it says where to find a value"
    PLACEHOLDER = "it is a placeholder"
    PLAIN = "it is a type, a constant or a keyword"
    NUMBER = "it is a number, a date, a version or a duration"
    NAME = "it is a name, not a value"
    LABEL = "it is a label or a message"
    PHRASE = "it is a phrase of plain words"
    WORD = "it is one plain word"
    ID = "it is an identifier"
    MIXED = "it mixes letters with digits or marks, as passwords do"
    RANDOM = "it is long and random"


UNRESOLVED = {Looks.EMPTY, Looks.REFERENCE, Looks.PLACEHOLDER}
NO_VALUE = UNRESOLVED | {Looks.PLAIN}
NO_SECRET = NO_VALUE | {Looks.LABEL}
_PLAIN = word_set("""
none null nil true false yes no on off str string undefined required optional int integer float
double bool boolean bytes byte any list dict set tuple object self cls this array text char
varchar number void never unknown symbol bigint date datetime uuid json jsonb secretstr
secretbytes usize u8 bytea blob citext timestamptz bearer basic digest token password secret read
write none admin default auto enabled disabled deny allow always never ifnotpresent inherit
initial strict lax httponly secure stdin stdout prompt ask missing invalid expired wrong empty
unset new delete env file keyring vault kms manual header
""")
_PARTS = {"name", "path", "id", "value", "url", "type", "only", "user", "host", "data"}
_FUNCTION_WORDS = word_set("""
is was are be the a an this that your my our its of in for and or to with must at by from if when
not can cannot should will would has have had may as it only ist sind der die das und oder nicht
mit für von le la les un une est sont des
""")
_TYPE = re.compile(
    r"[A-Z]\w*<[\w<>' ,&:\[\]]{1,80}>|[a-z_]+(?::[\w,.]+)?(?:\|[a-z_]+(?::[\w,.]+)?)+|[a-z]{2,16}:\d{1,4}|&(?:'\w+ )?(?:mut )?[a-z]\w*|&?(?:'\w+ )?(?:mut )?[A-Za-z_][\w.:]*(?:<[^<>\"']{1,60}(?:<[^<>]{1,40}>)?>|\[[\w ,.|\[\]]{0,60}\])"
    r"[?!]?(?:\s*\|\s*[\w.\[\]]+)*"
    r"|(?:VAR)?CHAR\(\d+\)|[A-Za-z]+(?:\s*\|\s*[A-Za-z]+)+|\[\]\w+|\*[a-z.]+|map\[\w+\]\w+"
    r"|(?:[a-z]\w*\.)*(?:[A-Z][a-z0-9]+)*(?:String|Str|Secret|Token|Bytes|Key|Password|Credentials?"
    r"|Option|Type|Optional|Callback|Provider|Encoder|Field|Hash|Error|Exception)[?!]?"
)
_REFERENCE = re.compile(
    r"\$\{[^{}]{0,256}\}?.{0,64}|\$\(.{0,512}|\$[A-Za-z_]\w*(?:(?:->|::|\.)\w+\(.{0,256}|(?:[.:\[\]>'\"\w-]|->){0,128})|\$\d{1,2}|\$"
    r"|\{\{.{0,256}|\{[\w.$:!-]{0,64}\}|%\([\w.]{1,64}\)s|%[a-zA-Z]|%\w{1,64}%|%|<[^<>]{0,128}>|@[\w.]{1,64}@"
    r"|#\{.{0,256}|#/[\w$./-]{1,128}|`[^`]{0,128}`?|\?|:\w{1,64}|\[\[?[\w .:-]{0,64}\]?\]|<%.{0,128}|<\?.{0,128}"
    r"|FILE:/\S{1,256}|(?:env|vault|file|ssm|secretsmanager|keyring|op|ref|secret|gcp|aws|azurekeyvault|kms|sops|"
    r"pass|cmd|exec|arn|projects|doppler|keychain|1password|lookup|vars|secrets)[:|/!][^\s]{1,256}"
    r"|(?:process\.env|os\.environ|import\.meta|env|ENV|var|local|data|self|cls|this|os|sys|settings"
    r"|config|conf|cfg|process|request|req|res|response|args|options|opts|ctx|context|kwargs|params"
    r"|props|state|user|secrets|vars|module|each|values|session|account|client|form|body|event|app"
    r"|credentials|creds|auth|input|inputs|github|matrix|steps|needs|runner|random_password\w*|event"
    r"|document|window|localStorage|sessionStorage|Deno|Bun)(?:\??\.|\[|::|->).{0,256}"
    r"|[\w./-]{1,128}@sha256:[0-9a-f]{8,64}|(?:id|name|src|source|type)=\S{0,256}|![A-Z]\w+.{0,128}|~?\.{0,2}(?:/[\w.@~+-]+){2,16}/?|~/.{0,128}|\./\S{1,128}|[A-Za-z]:\\.{0,256}"
    r"|[\w-]+\.(?:txt|pem|key|crt|json|ya?ml|env|toml|ini|conf|cfg|html?|py|js|ts|go|rs|md|log|sh|p12|jks)(?::\d{1,6}){0,2}"
    r"|sha(?:1|256|384|512)[-:][A-Za-z0-9+/=]{16,}|HTTP/\d(?:\.\d)?|CVE-\d{4}-\d{4,7}|GHSA(?:-\w{4}){3}"
    r"|[a-z][a-z0-9+.-]{1,32}://\S{0,512}|data:[a-z]+/.{0,512}",
    re.DOTALL,
)
_PLACEHOLDER = re.compile(
    r"[\s*.…•●#_=-]{0,256}|[xX*•.]{3,}.{0,8}|.{0,8}[xX*•]{4,}.{0,8}|\.{3}.{0,64}|.{0,32}(?:\.{3}|…)"
    r"|(?:your|insert|enter|replace|paste|put|fill|choose|pick|type|provide)[-_ ][a-z_ '.-]{0,64}"
    r"|(?:[a-z]{1,16}[-_ .]){0,4}(?:change[-_ ]?(?:me|it|this)|placeholder|replace[-_ ]?(?:me|this|with)|redacted|masked"
    r"|not[-_ ]?(?:a[-_ ]?)?real|dummy|example|sample|fake|hidden|omitted|removed)"
    r"(?:[-_ .][a-z]{1,16}){0,4}!?|[a-z_-]{0,32}[-_]here|(?:my|the|some|an?|test|super|top|demo|foo|bar|this)?[-_ ]?(?:is[-_ ])?"
    r"(?:a[-_ ])?(?:secret|secure|strong|safe|new|old|db|user|api|access)?[-_ ]?(?:pass(?:word|wd)?"
    r"|secret|token|key|api[-_]?key|value)s?|foo|bar|baz|todo|tbd|fixme|n/?a|blah|qux"
    r"|<.{0,64}>|\(.{0,64}\)|\[.{0,64}\]",
    re.IGNORECASE | re.DOTALL,
)
_INTERPOLATED = re.compile(
    r"\$\{[^{}]{0,128}\}?|\{\{.{0,64}|#\{[^{}]{0,64}\}?|\{[A-Za-z_][\w.()\[\]!:]{0,64}\}?|\{\}|%[sdv](?!\w)|\$\("
)
_NUMBER = re.compile(
    r"[+-]?\d{1,3}(?:[.,]\d{1,6}|[,_]\d{3}){0,6}[a-zA-Z%]{0,2}|[+-]?\d+(?:\.\d+)?"
    r"\s?(?:ms|[smhdwy]|secs?|seconds?|min(?:ute)?s?|hours?|days?|weeks?|months?|years?|[kKMGT]?i?B|bytes"
    r"|chars?|characters|bits?|times|tokens?|keys?|px|r?em|pt|%)"
    r"|[~^<>=v ]{0,3}\d{1,5}(?:\.(?:\d{1,6}|[x*])){1,3}(?:[-+.][\w.+-]{0,32})?(?: ?[|,<>=-].{0,48})?"
    r"|\d{4}-\d\d-\d\d(?:[T ][\d:.+Z-]{0,24})?|\d{1,2}[./]\d{1,2}[./]\d{2,4}|\d{1,2}:\d\d(?::\d\d)?"
    r"|\d{1,6}/(?:s|sec|second|m|min|minute|h|hour|d|day|month)|#[0-9a-fA-F]{3,8}|0x[0-9a-fA-F]{1,4}"
    r"|\d{1,4}\s?[x×]\s?\d{1,4}|\d+(?: \d+){1,3}"
)
_COMPOUNDS = ("token", *(noun for noun in NOUNS if len(noun) >= 6 and not noun.startswith("pass")))
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_HEX = re.compile(r"(?:0x)?(?:[0-9a-f]{12,}|[0-9A-F]{12,})")
DIGIT = re.compile(r"\d")
_DIGEST = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")  # hash of a commit or a file
_WORD = re.compile(r"[^\W\d_]+")
_PROSE = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*[.,:;!?…)]{0,3}")
_CALL = re.compile(
    r"[A-Za-z_$][\w.$]*(?:::\w+)*!?\(|[A-Za-z_$][\w$]*\[|\w+\s[=!]==?\s|[\w)\]]\s*=>"
)
_DOTTED = re.compile(r"[A-Za-z_$][\w$]*(?:\??(?:\.|::|->)[A-Za-z_$][\w$]*)+")
_SLUG = re.compile(r"[^\W\d_]+(?:[-_./:][^\W\d_]+)+")
_COUNTED = re.compile(r"[^\W\d_]+[-_]?\d{1,2}")
_ALGORITHM = re.compile(
    r"(?:(?:sha|md|aes|rsa|hs|rs|es|ps|ecdsa|ed|des|rc|utf|base|pbkdf|argon|hmac|pkcs|tls|ssl|http|ipv"
    r"|oauth|saml|win|gpt|claude|llama|gemini|chacha|blake|crc|iso|rfc|cp|arm|amd|python|node|java|php)"
    r"[-_]?\d{1,5}|x509|k8s|i18n|l10n|a11y|w3c|bcrypt|scrypt|h26[45])[a-z]{0,2}"
    r"(?:[-_/.](?:[a-z]{1,12}|[a-z]{0,4}\d{1,4}[a-z]{0,2})){0,6}",
    re.IGNORECASE,
)


def looks(value: str) -> Looks:
    """Return the kind of a value. Only the beginning of a long value is examined."""
    return _looks(value[:LONGEST])


@functools.lru_cache(maxsize=8192)
def _looks(value: str) -> Looks:
    value = value.strip().rstrip(",;")
    if not value or only_placeholders(value.rstrip(".,;:!?")):
        return Looks.EMPTY
    small = value.lower()
    if (bare := small.rstrip(".,;:!?()")) in _PLAIN or bare in _FUNCTION_WORDS:
        return Looks.PLAIN
    if _PLACEHOLDER.fullmatch(value) or _PLACEHOLDER.fullmatch(value.rstrip(")]}\"'")):
        return Looks.PLACEHOLDER
    if _REFERENCE.fullmatch(value):
        return Looks.REFERENCE
    if _INTERPOLATED.search(value) and not mixed(_INTERPOLATED.sub("", value)):
        return Looks.REFERENCE
    if _TYPE.fullmatch(value):
        return Looks.PLAIN
    if _NUMBER.fullmatch(value):
        return Looks.NUMBER
    if " " in value or "\n" in value:
        return _sentence(value)
    return _token(value)


def _sentence(value: str) -> Looks:
    """Return the kind of a value that consists of several words."""
    parts = value.split()
    if _CALL.match(value):
        return Looks.REFERENCE
    found = {word for part in parts for word in words(part)}
    if found & NOUNS or (len(parts) > 2 and value[-1:] in ".!?:…"):
        return Looks.LABEL
    if not all(_PROSE.fullmatch(part) for part in parts):
        return Looks.MIXED if len(parts) <= 8 else Looks.LABEL
    return Looks.PHRASE


def _token(value: str) -> Looks:
    """Return the kind of a value without spaces."""
    if _CALL.match(value):
        return Looks.REFERENCE
    if _UUID.fullmatch(value):
        return Looks.ID
    if _WORD.fullmatch(value.rstrip("!?.:,…")):
        small = value.lower().rstrip("!?.:,…")
        compound = not value.islower() and small.endswith(_COMPOUNDS)
        if small in NOUNS or compound or CJK.search(small):
            return Looks.LABEL
        if not value.islower() and set(words(value)) & NOUNS:
            return Looks.NAME
        return Looks.RANDOM if len(value) >= 20 and random(value) else Looks.WORD
    if (slug := _SLUG.fullmatch(value)) or (_DOTTED.fullmatch(value) and not _odd(value)):
        said = set(words(value))
        known = bool(said & NOUNS if slug and "." not in value else said & (NOUNS | _PLAIN))
        return (
            Looks.NAME
            if known or said <= (_PLAIN | _PARTS) or value.count("/") or len(value) > 48
            else Looks.WORD
        )
    if value.isdigit():
        return Looks.NUMBER
    if _ALGORITHM.fullmatch(value):
        return Looks.NAME
    if _COUNTED.fullmatch(value) and set(words(value)) & NOUNS:
        return Looks.NAME
    return Looks.RANDOM if random(value) else Looks.MIXED


def _odd(value: str) -> bool:
    """Return whether a value has digits in positions that are unusual in names."""
    return any(c.isdigit() for c in value) and bool(re.search(r"\d[a-z]|[a-z]\d[A-Z]", value))


def random(value: str) -> bool:
    """Return whether a value looks generated: long and of high entropy."""
    if len(value) < 16:
        return False
    value = value[:LONGEST]
    if _HEX.fullmatch(value):
        return len(set(value)) >= 6
    if (value.islower() or value.isupper()) and not DIGIT.search(value):
        return False
    return entropy(value) >= 3.0 and (len(value) >= 24 or mixed(value))


def is_distinct(value: str) -> bool:
    """Return whether a value is so distinct that it cannot be an ordinary word, number or name.

    See [redaction](../redaction.md).
    """
    if (
        not 8 <= len(value) <= LONGEST
        or any(c.isspace() for c in value)
        or _DIGEST.fullmatch(value)
    ):
        return False
    return looks(value) in (Looks.RANDOM, Looks.MIXED) and (mixed(value) or random(value))


def mixed(value: str) -> bool:
    """Return whether a value has letters and digits, as most password rules require."""
    value = value.strip("\"'`.,;:()[]{}<>")
    if not 6 <= len(value) <= 128:
        return False
    digits = sum(c.isdigit() for c in value)
    letters = sum(c.isalpha() for c in value)
    if not digits or letters < 2:
        return False
    return not (
        _NUMBER.fullmatch(value) or _ALGORITHM.fullmatch(value) or _COUNTED.fullmatch(value)
    )


def entropy(value: str) -> float:
    """Return the entropy of a string in bits per character."""
    size = len(value)
    return -sum(n / size * math.log2(n / size) for n in Counter(value).values())


# An address, a reference, a position in a file, code.
_OTHER = re.compile(
    r"://|^[$%{<]|\.\w{1,4}:\d|\(|'\)|^[\w.+-]+@[\w-]+\.[\w.]+$|^--?\w|^\w+\[|=>|;$"
)
# Letters with a punctuation character among them, which no word contains.
_SIGNED_WORD = re.compile(r"(?=.{6,64}\Z)[^\W\d_]{2,}[!#$^~+][^\W\d_]{2,}[!#$^~+]{0,2}")
_LEET = re.compile(r"[a-z]\d[a-z]", re.IGNORECASE)
_WORD_AND_NUMBER = re.compile(r"(?=\D{4})[^\W\d_]+[-_]*\d+")


def is_plausible(value: str) -> bool:
    """Return whether a value can be a secret, in a context where the text says that a secret
    follows.
    """
    value = value[:LONGEST]
    if _OTHER.search(value) or (value.count("/") > 1 and not random(value)):
        return False
    shape = looks(value)
    if shape is Looks.ID:
        return True
    if not DIGIT.search(value):
        return (shape is Looks.RANDOM and len(value) >= 24) or bool(_SIGNED_WORD.fullmatch(value))
    if shape is Looks.MIXED:
        return mixed(value) or _WORD_AND_NUMBER.fullmatch(value) is not None
    return shape is Looks.RANDOM


def is_strong(value: str) -> bool:
    """Return whether a value is a secret even without a name: it has digits among letters, and
    punctuation or capitals that occur in no word.
    """
    if _OTHER.search(value) or looks(value) not in (Looks.MIXED, Looks.RANDOM):
        return False
    if not mixed(value):
        return _SIGNED_WORD.fullmatch(value) is not None
    capitals = any(c.isupper() for c in value) and any(c.islower() for c in value)
    if value.count("/") > 1 or value.count(".") > 1:
        return random(value) and capitals
    if value.isalnum():
        return capitals and (_LEET.search(value) is not None or random(value))
    return capitals or _LEET.search(value) is not None
