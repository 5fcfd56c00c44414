"""Finds personal data in text: the kinds that the application selects, and the strings that the
application registers.

A kind is found by its format if that is unique (e-mail addresses, card numbers with a valid check
digit), otherwise by its label ("date of birth: …"); and by the name of its field.
"""

from __future__ import annotations

import functools
import importlib
import ipaddress
import re
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, TypeAlias

from ...errors import InvalidValue
from ...redact import Finder, Span
from ...redact.spans import pattern_finder

Valid: TypeAlias = Callable[[str], bool]

PERSON = "person"  # the rule of registered texts
SHORTEST = 3  # minimum length of a registered text, in characters

_IS = r"[\"']?\s{0,3}(?:[:=#]|\b(?:is|was)\b)\s{0,3}[\"']?"
_MAY_BE = r"[\"']?\s{0,3}(?:[:=#]|\b(?:is|was)\b)?\s{0,3}[\"']?"
_NUMBER = r"(?:[\s_-]?(?:number|no\.?|nr\.?|id))?"
_CODE = r"(?=[A-Z -]{0,6}\d)[A-Z0-9][A-Z0-9 ./-]{3,22}[A-Z0-9]"  # an official id


class LabelledPattern(NamedTuple):
    """A pattern for a value after its label, and the words with which the label can begin."""

    pattern: str
    words: tuple[str, ...]


class PersonalKind(NamedTuple):
    """A kind of personal data. In a match of one of the `patterns`, the last group is the value, or
    the whole match if there is no group. `valid` confirms a match, and `names` are the names of its
    fields.
    """

    patterns: tuple[str | LabelledPattern, ...]
    names: str = ""
    valid: Valid | None = None


def _labelled(what: str, value: str, *, more: str = "", sign: str = _IS) -> LabelledPattern:
    """Match a value after a label and a separator: `date of birth: 1984-03-07`. `|` separates the
    labels, each of which may be followed by `more`.
    """
    names = what.split("|")
    spoken = "|".join(name.replace(" ", "[ _-]?") for name in names)
    heads = tuple(dict.fromkeys(re.split(r"[^^a-zäöüß]", name)[0] for name in names))
    return LabelledPattern(rf"(?i:(?<!\w)(?:{spoken}){more}{sign})({value})", heads)


def _digits(text: str) -> str:
    return "".join(c for c in text if c.isdigit())


def luhn(text: str) -> bool:
    """Return whether the check digit of a card number is correct."""
    total = 0
    for n, digit in enumerate(reversed(_digits(text))):
        value = int(digit) * (1 + n % 2)
        total += value - 9 if value > 9 else value
    return total % 10 == 0


def _card(text: str) -> bool:
    digits = _digits(text)
    return 13 <= len(digits) <= 19 and len(set(digits)) > 1 and luhn(digits)


def _iban(text: str) -> bool:
    plain = "".join(text.split()).upper()
    if not 15 <= len(plain) <= 34:
        return False
    return int("".join(str(int(c, 36)) for c in plain[4:] + plain[:4])) % 97 == 1


def _ip(text: str) -> bool:
    try:
        found = ipaddress.ip_address(text)
    except ValueError:
        return False
    return not (found.is_loopback or found.is_unspecified)


def _phone(text: str) -> bool:
    return 7 <= len(_digits(text)) <= 15


def _place(text: str) -> bool:
    return all(abs(float(n)) <= 180 for n in re.findall(r"-?\d+\.\d+", text))


_DATE = (
    r"\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/. ]{1,2}\d{1,2}[-/. ]{1,2}\d{2,4}"
    r"|\d{1,2}(?:st|nd|rd|th)?\.? [^\W\d_]{3,12}\.?,? \d{4}"
    r"|[^\W\d_]{3,12}\.? \d{1,2}(?:st|nd|rd|th)?,? \d{4}"
)
_STREET = (
    r"(?i:street|st|avenue|ave|road|rd|boulevard|blvd|lane|ln|drive|dr|court|ct|square|terrace"
    r"|place|way)\b\.?"
)
_TOWN = r"(?:, ?[A-Z][\w .'-]{2,40}){0,3}(?:,? [A-Z]{2} \d{5}(?:-\d{4})?)?"
_GERMAN = r"(?i:straße|strasse|str\.|weg|platz|allee|gasse) \d{1,4}[a-z]?(?:, ?\d{5} [\w-]{2,30})?"
_WORD = r"[^\W\d_][^\W\d_'’.-]{0,30}"
_ANGLE = r"\d{1,3}°\s?\d{1,2}['′]\s?[\d.]{1,6}[\"″]?\s?"

KINDS: dict[str, PersonalKind] = {
    "email": PersonalKind(
        (
            r"(?<![\w.+%-])[A-Za-z0-9][\w.+%-]{0,63}"
            r"@(?:[A-Za-z0-9](?:[A-Za-z0-9-]{0,62})\.){1,8}[A-Za-z]{2,24}",
        ),
        "email e_mail email_address mail",
    ),
    "phone": PersonalKind(
        (
            r"(?<![\w.+-])\+\d{1,3}(?:[ .\-/]{0,2}\(?\d{1,4}\)?){2,6}(?![\w-])",
            r"(?<![\w.)+-])\(\d{2,5}\)[ .-]?\d{3,4}[ .-]?\d{3,5}(?![\w-])",
            r"(?<![\w.+-])\d{3}[-. ]\d{3}[-. ]\d{4}(?![\w-])",
            r"(?<![\w.+/-])0\d{1,4}[ /-]\d{2,4}[ -]?\d{2,5}(?:[ -]?\d{1,4})?(?![\w-])",
            _labelled(
                "phone|telephone|tel|mobile|cell|fax|whatsapp|call me at",
                r"[+(]?\d[\d ().\-/]{5,20}\d",
                sign=_MAY_BE,
            ),
        ),
        "phone phone_number mobile telephone fax cell",
        _phone,
    ),
    "card": PersonalKind(
        (r"(?<![\w.-])[2-6]\d{3}(?:[ -]?\d){9,15}(?![\w-])",),
        "card_number credit_card pan cvv cvc",
        _card,
    ),
    "iban": PersonalKind(
        (r"(?<!\w)[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,3})?(?!\w)",),
        "iban",
        _iban,
    ),
    "account": PersonalKind(
        (
            _labelled(
                "account number|account no|routing|routing number|sort code|kontonummer|bic"
                "|swift code",
                _CODE,
                sign=_MAY_BE,
            ),
        ),
        "account_number routing_number sort_code bank_account bic swift_code",
    ),
    "ip": PersonalKind(
        (
            r"(?<![\w.:-])\d{1,3}(?:\.\d{1,3}){3}(?![\w-]|\.\d)",
            r"(?<![\w:.])(?:[0-9A-Fa-f]{1,4}:){2,7}(?::?[0-9A-Fa-f]{1,4}){1,7}(?![\w:])",
            r"(?<![\w:.])::(?:[0-9A-Fa-f]{1,4}:){0,6}[0-9A-Fa-f]{1,4}(?![\w:])",
        ),
        "ip ip_address remote_addr client_ip",
        _ip,
    ),
    "mac": PersonalKind(
        (
            r"(?<![\w:-])(?:(?:[0-9A-Fa-f]{2}:){5}|(?:[0-9A-Fa-f]{2}-){5})[0-9A-Fa-f]{2}(?![\w:-])",
            r"(?<![\w.])(?:[0-9a-f]{4}\.){2}[0-9a-f]{4}(?![\w.])",
        ),
        "mac_address",
    ),
    "ssn": PersonalKind(
        (
            r"(?<![\w-])(?!000|666|9)\d{3}-(?!00)\d{2}-(?!0000)\d{4}(?![\w-])",
            _labelled(
                "ssn|social security", r"\d{3}[- ]?\d{2}[- ]?\d{4}", more=_NUMBER, sign=_MAY_BE
            ),
        ),
        "ssn social_security_number",
    ),
    "national_id": PersonalKind(
        (
            _labelled(
                "national id|national insurance|nino|id card|tax id|steuer id|personnummer|bsn"
                "|pesel|cpf|nhs|aadhaar|dni|nif|nir|codice fiscale|personalausweis",
                _CODE,
                more=_NUMBER,
                sign=_MAY_BE,
            ),
            r"(?<!\w)[A-CEGHJ-PR-TW-Z][A-CEGHJ-NPR-TW-Z](?: ?\d{2}){3} ?[A-D](?!\w)",
        ),
        "national_id tax_id nino nhs_number bsn pesel cpf personal_id",
    ),
    "passport": PersonalKind(
        (_labelled("passport|reisepass", _CODE, more=_NUMBER, sign=_MAY_BE),),
        "passport passport_number",
    ),
    "driver_license": PersonalKind(
        (
            _labelled(
                "driver'?s? licen[cs]e|driving licen[cs]e|führerschein",
                _CODE,
                more=_NUMBER,
                sign=_MAY_BE,
            ),
        ),
        "driver_license drivers_license license_number",
    ),
    "birth": PersonalKind(
        (
            _labelled(
                r"date of birth|birth date|birthday|dob|d\.o\.b\.|born|born on|geboren|geboren am"
                r"|geburtsdatum",
                _DATE,
                sign=_MAY_BE,
            ),
        ),
        "date_of_birth dob birthday birth_date birthdate born",
    ),
    "address": PersonalKind(
        (
            _labelled(
                "address|home address|postal address|street address|mailing address"
                "|shipping address|billing address|delivery address|anschrift|adresse",
                r"[^\n\"'{}<>\[\]]{6,160}",
            ),
            rf"(?<!\w)\d{{1,5}}[a-z]? (?:[A-Z][\w.'-]{{1,30}} ){{1,4}}{_STREET}{_TOWN}",
            rf"(?<!\w)[A-ZÄÖÜ][\w.-]{{2,30}}{_GERMAN}",
        ),
        "address street street_address home_address postal_address shipping_address "
        "billing_address",
    ),
    "postcode": PersonalKind(
        (
            _labelled(
                r"zip(?: ?code)?|post(?:al)? ?code|plz|postleitzahl", r"[A-Z0-9][A-Z0-9 -]{2,8}"
            ),
            r"(?<!\w)[A-Z]{1,2}\d[A-Z\d]? \d[A-Z]{2}(?!\w)",
        ),
        "zip zip_code postcode postal_code plz",
    ),
    "name": PersonalKind(
        (
            _labelled(
                "full name|first name|last name|given name|family name|maiden name|patient name"
                "|customer name|client name|my name|surname|vorname|nachname",
                rf"{_WORD}(?:[ -]{_WORD}){{0,3}}",
            ),
            r"(?<!\w)(?:Mr|Mrs|Ms|Miss|Dr|Prof|Herr|Frau)\.? "
            r"([A-ZÄÖÜ][\w'’-]{1,30}(?: [A-ZÄÖÜ][\w'’-]{1,30}){0,2})",
        ),
        "full_name first_name last_name given_name family_name surname display_name "
        "user_name customer_name patient_name maiden_name",
    ),
    "user": PersonalKind(
        (_labelled("user name|login|handle|screen name", r"[\w.@-]{3,64}"),),
        "user username login handle user_id assignee",
    ),
    "location": PersonalKind(
        (
            r"(?<![\w.-])-?\d{1,2}\.\d{3,10}\s{0,2}[,;/ ]\s{0,2}-?\d{1,3}\.\d{3,10}(?![\w.])",
            rf"(?<!\w){_ANGLE}[NS],? {_ANGLE}[EW]",
        ),
        "latitude longitude lat lng lon geolocation coordinates",
        _place,
    ),
    "plate": PersonalKind(
        (
            _labelled(
                "licen[cs]e plate|number plate|registration plate|kennzeichen",
                r"(?=[A-ZÄÖÜ -]{0,6}\d)[A-ZÄÖÜ0-9][A-ZÄÖÜ0-9 -]{2,9}[A-Z0-9]",
                sign=_MAY_BE,
            ),
        ),
        "license_plate number_plate kennzeichen",
    ),
    "vehicle": PersonalKind(
        (_labelled("vin|vehicle identification number", "[A-HJ-NPR-Z0-9]{17}", sign=_MAY_BE),),
        "vin",
    ),
    "device": PersonalKind(
        (_labelled("imei|serial number|device id|udid", r"[A-Za-z0-9][A-Za-z0-9-]{6,40}"),),
        "imei serial_number device_id udid advertising_id",
    ),
    "medical": PersonalKind(
        (
            _labelled(
                "mrn|medical record|patient|insurance|versicherten",
                _CODE,
                more=_NUMBER,
                sign=_MAY_BE,
            ),
        ),
        "mrn medical_record_number patient_id insurance_number",
    ),
    "wallet": PersonalKind(
        (
            r"(?<!\w)0x[0-9a-fA-F]{40}(?!\w)",
            r"(?<!\w)bc1[ac-hj-np-z02-9]{25,71}(?!\w)",
            r"(?<!\w)[13][a-km-zA-HJ-NP-Z1-9]{25,34}(?!\w)",
        ),
        "wallet wallet_address",
    ),
    "health": PersonalKind(
        (
            _labelled("diagnosis|blood type|diagnose|medication", r"[^\n.;\"'{}\[\]]{2,80}"),
            r"(?i:\bdiagnosed with )([^\n.;\"'{}\[\]]{2,80})",
        ),
        "diagnosis blood_type medication medical_history",
    ),
    "salary": PersonalKind(
        (
            _labelled(
                "salary|income|gehalt",
                r"(?:[€$£]|EUR |USD )?\d[\d.,]{2,12}(?: ?(?:[€$£]|EUR|USD|GBP))?",
            ),
        ),
        "salary income",
    ),
    "belief": PersonalKind(
        (
            _labelled(
                "religion|ethnicity|nationality|political party|sexual orientation",
                r"[^\W\d_][\w -]{2,40}",
            ),
        ),
        "religion ethnicity nationality sexual_orientation political_party gender",
    ),
}

# National ids that python-stdnum can check if it is installed, by module.
NUMBERS = {
    "fr.nir": r"[12]\s?\d{2}\s?(?:0[1-9]|1[0-2]|[2-9]\d)\s?\d[\dAB]\s?\d{3}\s?\d{3}\s?\d{2}",
    "it.codicefiscale": r"[A-Z]{6}\d{2}[A-EHLMPR-T]\d{2}[A-Z]\d{3}[A-Z]",
    "es.dni": r"\d{8}-?[A-HJ-NP-TV-Z]",
    "es.nie": r"[XYZ]-?\d{7}-?[A-HJ-NP-TV-Z]",
    "fi.hetu": r"\d{6}[-+A-FU-Y]\d{3}[0-9A-FHJ-NPR-Y]",
    "ch.ssn": r"756\.\d{4}\.\d{4}\.\d{2}",
    "br.cpf": r"\d{3}\.\d{3}\.\d{3}-\d{2}",
    "se.personnummer": r"(?:\d{2})?\d{6}[-+]\d{4}",
    "dk.cpr": r"\d{6}-\d{4}",
    "be.nn": r"\d{2}\.\d{2}\.\d{2}-\d{3}\.\d{2}",
    "in_.aadhaar": r"\d{4}[ -]\d{4}[ -]\d{4}",
    "cz.rc": r"\d{6}/\d{3,4}",
    "no.fodselsnummer": r"\d{6} \d{5}",
    "mx.curp": r"[A-Z]{4}\d{6}[HM][A-Z]{5}[0-9A-Z]\d",
    "cn.ric": r"\d{17}[\dX]",
}


def chosen(kinds: Iterable[str]) -> tuple[str, ...]:
    """Return the selected kinds; `all` selects every kind."""
    wanted = set(kinds)
    if not wanted <= {*KINDS, "all"}:
        raise InvalidValue(
            field="personal",
            problem="has an unknown kind of personal data",
            remedy=f"use all, or some of {', '.join(KINDS)}",
        )
    return tuple(kind for kind in KINDS if kind in wanted or "all" in wanted)


def labels(kinds: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return, for each of these kinds of personal data, the names of fields that contain it."""
    return {kind: tuple(KINDS[kind].names.split()) for kind in kinds}


def checks(kinds: Iterable[str]) -> list[str]:
    """Return the name of the library that checks national ids, if it is needed and installed."""
    if "national_id" not in kinds or not _numbers():
        return []
    return [f"python-stdnum {importlib.import_module('stdnum').__version__}"]


def finders(kinds: Iterable[str], people: Iterable[str]) -> list[Finder]:
    """Return the finders of these kinds and of the registered strings."""
    names = tuple(people)
    for name in names:
        if len(name.strip()) < SHORTEST:
            raise InvalidValue(
                field="people",
                problem=f"contains a value with fewer than {SHORTEST} characters",
                remedy="register whole names, since shorter values would match ordinary text",
                limit=SHORTEST,
            )
    found: list[Finder] = [functools.partial(_kind, kind) for kind in kinds]
    return [pattern_finder(PERSON, _registered(names)), *found] if names else found


@functools.cache
def _registered(people: tuple[str, ...]) -> re.Pattern[str]:
    """Find registered strings in any case, with any spaces or punctuation between their words."""
    by = r"(?:[\s._+-]|%20){1,4}"
    forms = {by.join(map(re.escape, re.split(r"[\s_]+", name.strip()))) for name in people}
    either = "|".join(sorted(forms, key=len, reverse=True))
    return re.compile(rf"(?<![^\W_])(?:{either})(?![^\W_])", re.IGNORECASE)


@functools.cache
def _patterns(kind: str) -> tuple[tuple[re.Pattern[str], tuple[str, ...]], ...]:
    """Return each pattern with lower-case words. If there are words, a string is searched only if
    it contains one of them.
    """
    return tuple(
        (re.compile(it.pattern), it.words)
        if isinstance(it, LabelledPattern)
        else (re.compile(it), ())
        for it in KINDS[kind].patterns
    )


def _kind(kind: str, text: str) -> Iterator[Span]:
    valid, small = KINDS[kind].valid, text.lower()
    for pattern, heads in _patterns(kind):
        if heads and not any(head in small for head in heads):
            continue
        for found in pattern.finditer(text):
            if valid is None or valid(found[pattern.groups]):
                yield Span(*found.span(pattern.groups), kind)
    for number, holds in _numbers() if kind == "national_id" else ():
        for found in number.finditer(text):
            if holds(found[0]):
                yield Span(*found.span(), kind)


@functools.cache
def _numbers() -> tuple[tuple[re.Pattern[str], Valid], ...]:
    found = []
    for name, pattern in NUMBERS.items():
        try:
            module = importlib.import_module(f"stdnum.{name}")
        except ImportError:
            continue
        found.append((re.compile(rf"(?<![\w.-])(?:{pattern})(?![\w-])"), module.is_valid))
    return tuple(found)
