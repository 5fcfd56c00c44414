"""The one decision about a name and its value: whether it is a secret, and why.

A format reads pairs out of a text and says how each stands there; nothing but `judge` decides
about them. What it cannot decide is doubtful: it stays, unless the caller is strict, and a review
shows it.
"""

from __future__ import annotations

import enum
import re
from typing import NamedTuple

from .names import HEADERS, NOUNS, SPOKEN, words
from .values import LONGEST, NO_VALUE, Looks, entropy, looks, mixed, random

# ruff: noqa: E501 - a pattern is easier to read in one piece


class Place(enum.Enum):
    """How a value stands beside its name. The later ones say less about where it ends, and about
    whether it is a value at all."""

    FIELD = "field"  # of an object, as data
    LINE = "line"  # the rest of a line: dotenv, INI, YAML, a header
    QUOTED = "quoted"  # a literal behind a sign
    OPTION = "option"  # behind an option of a command
    CELL = "cell"  # below a header
    CALL = "call"  # a literal, as the next argument or as what a call is given
    BARE = "bare"  # a run behind a sign, in the middle of a line
    PROSE = "prose"  # in a sentence


class Verdict(NamedTuple):
    """`secret` says whether it goes; `doubtful` that somebody should look at it."""

    secret: bool
    doubtful: bool
    reason: str


_OPEN = {Looks.REFERENCE, Looks.PLACEHOLDER}
# References that are nothing else, whatever their names are.
_REFERENCE = re.compile(
    r"\$\{[^{}]*\}|\$\([^()]*\)|\{\{.*\}\}|%\([\w.]+\)s|%\w+%|<[A-Za-z][\w .-]*>|\$[A-Za-z_]\w*|[*•.x-]{3,}\w{0,4}"
    r"|(?:process\.env|os\.environ|import\.meta\.env|env|ENV|var|local|data|module|secrets|vars|config|settings)"
    r"[.\[][\w.\[\]'\"-]*|(?:env|vault|file|ssm|arn|op|keyring|projects|kms|secretsmanager)[:/][\w./:@-]*"
    r"|[a-z][a-z0-9+.-]*://\S*|~?\.{0,2}(?:/[\w.@~+-]+)+/?|[\w./-]+@sha256:[0-9a-f]+|[\w-]+\.\w{2,4}"
)
_ALWAYS = {Looks.RANDOM, Looks.MIXED}
_WORDY = {Looks.WORD, Looks.PHRASE}
# Where a value that could be a word of the text is taken for one.
_FIRM = {Place.LINE, Place.QUOTED, Place.OPTION, Place.CELL}
_LOOSE = {Place.CALL, Place.BARE, Place.PROSE}
_PINS = {"pin", "puk", "otp", "totp", "code", "codes", "passcode", "pincode", "tan", "密码"}
_DIGITS = re.compile(r"\d[\d -]{2,10}\d")


def judge(name: str, says: str, value: str, place: Place) -> Verdict:
    """Decide about `value` under `name`; `says` is how the name says that it is secret."""
    shape = looks(value)
    if mixed(name):
        name = "the name of a secret"  # which may be one itself
    if shape in _OPEN and says == "key" and mixed(value) and not _REFERENCE.fullmatch(value):
        # It only begins or ends like one. As data it is a value; elsewhere somebody should look.
        if place is Place.FIELD:
            return Verdict(True, False, f"it stands under {name}")
        return Verdict(False, True, shape.value)
    if shape in NO_VALUE and not _short(value, shape, place):
        doubtful = shape is Looks.PLACEHOLDER and place is Place.FIELD and says == "key"
        return Verdict(False, doubtful, shape.value)
    if says not in ("key", "token", "tokens", "weak"):  # the host opted into it by its name
        return Verdict(place in (Place.FIELD, Place.QUOTED), False, f"it stands under {name}")
    if says == "weak":
        return _weak(name, value, shape)
    return _named(name, says, value, shape, place)


def _short(value: str, shape: Looks, place: Place) -> bool:
    """Data may be anything, also a word that means nothing elsewhere; but for a label."""
    small, label = value.strip().lower(), value.strip().istitle()
    if place is not Place.FIELD or shape is not Looks.PLAIN or small in _NOTHING:
        return False
    return not (label and small in NOUNS)


_NOTHING = {"none", "null", "true", "false", "undefined", "string", "str"}


def _weak(name: str, value: str, shape: Looks) -> Verdict:
    """Under a name that many other things have as well."""
    last = (words(name) or ("",))[-1]
    if last in _PINS:
        fits = _DIGITS.fullmatch(value.strip()) is not None or shape in _ALWAYS
        return Verdict(fits, not fits, f"{name} and digits" if fits else shape.value)
    if shape is Looks.RANDOM and strong(value):
        return Verdict(True, False, f"{shape.value}, and stands under {name}")
    people = last in ("pass", "pw", "pat")
    if people and shape in _ALWAYS:
        return Verdict(True, False, f"{shape.value}, and stands under {name}")
    return Verdict(False, shape in _ALWAYS, f"{name} may mean something else")


def _named(name: str, says: str, value: str, shape: Looks, place: Place) -> Verdict:
    """Under a name that means a secret."""
    yes = Verdict(True, False, f"it stands under {name}")
    header = words(name)[-2:] in HEADERS or words(name)[-1:] in HEADERS
    if place is Place.FIELD:
        kept = shape in (Looks.LABEL, Looks.NAME) and not header and says != "tokens"
        kept = kept and not (
            shape is Looks.NAME and "-" in value and words(name)[-1:] == ("password",)
        )
        kept = kept or (shape is Looks.NUMBER and says != "key" and _version(value))
        return Verdict(False, True, shape.value) if kept else yes
    if shape is Looks.RANDOM:
        return Verdict(True, False, f"{shape.value}, and stands under {name}")
    if shape is Looks.MIXED or shape is Looks.ID:
        sure = mixed(value) or shape is Looks.ID or place is Place.PROSE  # which has looked itself
        sure = sure or (
            place is Place.BARE and says == "key" and len(value) >= 6 and value.isalnum()
        )
        loose = place in _LOOSE and not sure
        return Verdict(not loose, loose, f"{shape.value}, and stands under {name}")
    if shape in _WORDY:
        return _word(name, says, value, shape, place)
    if shape is Looks.NUMBER:
        return _number(name, says, value, place)
    if shape is Looks.NAME and says == "key" and place in _FIRM and _is_made_up(value):
        return yes
    return Verdict(False, shape in (Looks.LABEL, Looks.NAME), shape.value)


def _is_made_up(value: str) -> bool:
    """Whether it is a word and a number, or of words that no name of a secret has."""
    value = value[:LONGEST]
    if value[-1].isdigit() and value.rstrip("0123456789").isalpha():
        return True
    return "-" in value and not set(words(value)) & NOUNS and not any(c in value for c in "./:(")


def _version(value: str) -> bool:
    return not value.strip().isdigit()


def _word(name: str, says: str, value: str, shape: Looks, place: Place) -> Verdict:
    """Plain words: a password of somebody who is careless, or a part of the text."""
    spoken = bool(set(words(name)) & SPOKEN)
    if shape is Looks.PHRASE:
        fits = (spoken and len(value.split()) >= 3) or (
            says == "key" and place in (Place.QUOTED, Place.LINE) and _passphrase(value, place)
        )
        return Verdict(fits, not fits, "it is a passphrase" if fits else shape.value)
    slug = "-" in value and says == "key" and place in (Place.BARE, Place.PROSE)
    label = value.isalpha() and value[1:].islower() and value[:1].isupper()
    label = label and not (name.isupper() or place in (Place.OPTION, Place.CELL))
    if (place in _LOOSE and not slug) or label:
        return Verdict(False, True, shape.value)
    if slug:
        return Verdict(True, False, f"it stands under {name}")
    if place is Place.OPTION and ((len(value) < 3 and "." in name) or value.isupper()):
        return Verdict(False, True, shape.value)  # mangled code, or what a help text calls it
    fits = says == "key" or place in (Place.OPTION, Place.LINE)
    fits = fits and not (place is Place.QUOTED and words(name)[-1:] == ("passwords",))
    return Verdict(fits, not fits, f"it stands under {name}")


def _passphrase(value: str, place: Place) -> bool:
    parts = value.split()
    least = 2 if place is Place.QUOTED else 4
    return (
        value.islower()
        and len(parts) >= least
        and all(len(part) < 3 or looks(part) is Looks.WORD for part in parts)
    )


def _number(name: str, says: str, value: str, place: Place) -> Verdict:
    if (words(name) or ("",))[-1] in _PINS and _DIGITS.fullmatch(value.strip()):
        return Verdict(True, False, f"{name} and digits")
    if says == "key" and place is Place.PROSE and _DIGITS.fullmatch(value.strip()):
        return Verdict(True, False, f"it stands under {name}")
    if says == "key" and place not in _LOOSE and value.strip().isdigit() and len(value) >= 4:
        return Verdict(True, False, f"it stands under {name}")
    return Verdict(False, False, Looks.NUMBER.value)


def strong(value: str) -> bool:
    """Whether a value is random enough to be a secret under a name that says little."""
    return random(value) and entropy(value) >= 3.0 and len(value) >= 16
