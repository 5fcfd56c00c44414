"""Decides whether a value that follows a name is a secret, and gives the reason.

A format reads pairs from text, with the syntax in which each is written; only `judge` decides
whether they are secrets. A value for which it cannot decide is doubtful: it is kept unless the
caller is strict, and reviews show it.
"""

from __future__ import annotations

import enum
import re
from typing import NamedTuple

from .names import HEADERS, NOUNS, SPOKEN, word_set, words
from .values import LONGEST, NO_VALUE, Looks, entropy, looks, mixed

# ruff: noqa: E501 - a pattern is easier to read in one piece


class Syntax(enum.Enum):
    """The syntax in which a value follows its name. The members are ordered from reliable to
    ambiguous: for later members it is less certain where the value ends, and whether there is
    a value at all.
    """

    FIELD = "field"  # a field of an object
    LINE = "line"  # the rest of a line: dotenv, INI, YAML, a header
    QUOTED = "quoted"  # a literal after a separator
    OPTION = "option"  # the argument of an option of a command
    CELL = "cell"  # a cell of a table, below a header
    CALL = "call"  # a literal among the arguments of a call
    BARE = "bare"  # a word after a separator, within a line
    PROSE = "prose"  # in a sentence


class Verdict(NamedTuple):
    """The decision about a value: it is `secret`; or it is `doubtful`, and a user should review it."""

    secret: bool
    doubtful: bool
    reason: str


# References, whatever their names are.
_REFERENCE = re.compile(
    r"\$\{[^{}]*\}|\$\([^()]*\)|\{\{.*\}\}|%\([\w.]+\)s|%\w+%|<[A-Za-z][\w .-]*>|\$[A-Za-z_]\w*|[*•.x-]{3,}\w{0,4}"
    r"|(?:process\.env|os\.environ|import\.meta\.env|env|ENV|var|local|data|module|secrets|vars|config|settings)"
    r"[.\[][\w.\[\]'\"-]*|(?:env|vault|file|ssm|arn|op|keyring|projects|kms|secretsmanager)[:/][\w./:@-]*"
    r"|[a-z][a-z0-9+.-]*://\S*|~?\.{0,2}(?:/[\w.@~+-]+)+/?|[\w./-]+@sha256:[0-9a-f]+|[\w-]+\.\w{2,4}"
)
_ALWAYS = {Looks.RANDOM, Looks.MIXED}
_WORDY = {Looks.WORD, Looks.PHRASE}
_FIRM = {Syntax.LINE, Syntax.QUOTED, Syntax.OPTION, Syntax.CELL}
_LOOSE = {Syntax.CALL, Syntax.BARE, Syntax.PROSE}
_PINS = word_set("pin puk otp totp code codes passcode pincode tan 密码")
_DIGITS = re.compile(r"\d[\d -]{2,10}\d")
_NOTHING = {"none", "null", "true", "false", "undefined", "string", "str"}


def judge(name: str, says: str, value: str, syntax: Syntax) -> Verdict:
    """Decide whether `value` is a secret. `name` is its name, and `says` the kind of the name (see
    `Names.find`).
    """
    shape = looks(value)
    if mixed(name):
        name = "the name of a secret"  # the name may contain a secret itself
    under = f"it is the value of {name}"
    field = syntax is Syntax.FIELD
    partly = shape in (Looks.REFERENCE, Looks.PLACEHOLDER) and says == "key" and mixed(value)
    if partly and not _REFERENCE.fullmatch(value):
        # It only begins or ends like a reference. In a field, it is a value.
        return Verdict(field, not field, under if field else shape.value)
    if shape in NO_VALUE and not (field and _is_word_as_data(value, shape)):
        return Verdict(False, shape is Looks.PLACEHOLDER and field and says == "key", shape.value)
    if says not in ("key", "token", "tokens", "weak"):  # a name that the application has added
        return Verdict(syntax in (Syntax.FIELD, Syntax.QUOTED), False, under)
    last = (words(name) or ("",))[-1]
    if says == "weak":
        secret, doubtful = _weak(last, value, shape)
    elif field:
        doubtful = _is_label(last, says, value, shape)
        secret = not doubtful
    else:
        secret, doubtful = _named(name, says, value, shape, syntax)
    return Verdict(
        secret, doubtful, f"{shape.value}, and the value of {name}" if secret else shape.value
    )


def _is_word_as_data(value: str, shape: Looks) -> bool:
    """Return whether a keyword such as `admin` is used as a value. In data, any word can be a
    value, except the label of a field.
    """
    value = value.strip()
    if shape is not Looks.PLAIN or value.lower() in _NOTHING:
        return False
    return not (value.istitle() and value.lower() in NOUNS)


def _weak(last: str, value: str, shape: Looks) -> tuple[bool, bool]:
    """Decide about a value whose name is ambiguous, such as `pass` or `auth`."""
    if last in _PINS:
        secret = _DIGITS.fullmatch(value.strip()) is not None or shape in _ALWAYS
        return secret, not secret
    secret = shape is Looks.RANDOM and entropy(value) >= 3.0
    secret = secret or (last in ("pass", "pw", "pat") and shape in _ALWAYS)
    return secret, not secret and shape in _ALWAYS


def _is_label(last: str, says: str, value: str, shape: Looks) -> bool:
    """Return whether a field that is named like a secret contains a label, a name or a version
    instead."""
    if shape is Looks.NUMBER:
        return says != "key" and not value.strip().isdigit()
    if shape not in (Looks.LABEL, Looks.NAME) or last in HEADERS or says == "tokens":
        return False
    return not (shape is Looks.NAME and "-" in value and last == "password")


def _named(name: str, says: str, value: str, shape: Looks, syntax: Syntax) -> tuple[bool, bool]:
    """Decide about a value in a string whose name is the name of a secret."""
    if shape in (Looks.RANDOM, Looks.ID):
        return True, False
    if shape is Looks.MIXED:
        secret = syntax not in (Syntax.CALL, Syntax.BARE) or mixed(value)
        if syntax is Syntax.BARE and says == "key" and len(value) >= 6 and value.isalnum():
            secret = True
        return secret, not secret
    if shape in _WORDY:
        fits = _is_phrase if shape is Looks.PHRASE else _is_password
        secret = fits(name, says, value, syntax)
        return secret, not secret
    if shape is Looks.NUMBER:
        return _is_number(name, says, value.strip(), syntax), False
    secret = shape is Looks.NAME and says == "key" and syntax in _FIRM and _is_made_up(value)
    return secret, not secret and shape in (Looks.LABEL, Looks.NAME)


def _is_made_up(value: str) -> bool:
    """Return whether a value is a word and a number, or consists of words that do not occur in
    names of secrets.
    """
    value = value[:LONGEST]
    if value[-1].isdigit() and value.rstrip("0123456789").isalpha():
        return True
    return "-" in value and not set(words(value)) & NOUNS and not any(c in value for c in "./:(")


def _is_phrase(name: str, says: str, value: str, syntax: Syntax) -> bool:
    """Return whether a value of several plain words is a passphrase."""
    parts = value.split()
    if SPOKEN & set(words(name)) and len(parts) >= 3:
        return True
    if says != "key" or syntax not in (Syntax.QUOTED, Syntax.LINE) or not value.islower():
        return False
    least = 2 if syntax is Syntax.QUOTED else 4
    return len(parts) >= least and all(len(p) < 3 or looks(p) is Looks.WORD for p in parts)


def _is_password(name: str, says: str, value: str, syntax: Syntax) -> bool:
    """Return whether one plain word is a weak password rather than an ordinary word of the text."""
    capital = value.isalpha() and value[1:].islower() and value[:1].isupper()
    if capital and not name.isupper() and syntax not in (Syntax.OPTION, Syntax.CELL):
        return False
    if syntax in _LOOSE:
        return "-" in value and says == "key" and syntax is not Syntax.CALL
    if syntax is Syntax.OPTION:  # in minified code, or the name of an argument in a help text
        return not ((len(value) < 3 and "." in name) or value.isupper())
    if syntax is Syntax.QUOTED and words(name)[-1:] == ("passwords",):
        return False
    return says == "key" or syntax is Syntax.LINE


def _is_number(name: str, says: str, value: str, syntax: Syntax) -> bool:
    pin = (words(name) or ("",))[-1] in _PINS
    if pin or (says == "key" and syntax is Syntax.PROSE):
        return _DIGITS.fullmatch(value) is not None
    return says == "key" and syntax not in _LOOSE and value.isdigit() and len(value) >= 4
