"""What cases are made of: values that look like secrets, the same on every run because each is
drawn from a hash of its seed, and the list that cases are written into. No literal secret stands
in this package."""

from __future__ import annotations

import base64
import hashlib
import json
import string
import textwrap
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

ALNUM = string.digits + string.ascii_uppercase + string.ascii_lowercase
URLSAFE = ALNUM + "-_"

VOCABULARY = (
    "amber anchor apple autumn badger basket beaver birch blanket blue bottle bridge butter button "
    "cactus candle canyon carrot castle cedar cherry cinder cobalt copper coral cotton cricket "
    "dagger dancer delta dragon eagle ember falcon feather forest garden ginger glacier granite "
    "hammer harbor hazel hunter indigo island jasmine juniper kettle ladder lantern lemon lizard "
    "magnet maple marble meadow mirror monkey mustard needle nickel orange orchid otter oyster "
    "paddle panther pepper pickle pirate planet purple rabbit raven ribbon river rocket saddle "
    "salmon shadow silver socket spider summer sunset tiger timber tomato troubador tulip turtle "
    "velvet violet walnut willow winter yellow zebra"
)
WORDS = VOCABULARY.split()

LEET = str.maketrans({"o": "0", "a": "4", "e": "3", "i": "1", "s": "5"})


@dataclass(frozen=True)
class Case:
    """A text, what of it must be gone after redaction, and what of it must still be there."""

    family: str
    name: str
    text: str
    secrets: tuple[str, ...]
    keeps: tuple[str, ...] = ()


class Cases(list[Case]):
    """Cases in the order in which they are written down."""

    def add(
        self,
        family: str,
        name: str,
        template: str,
        keeps: Sequence[str] = (),
        given: Mapping[str, str] | None = None,
        **secrets: str,
    ) -> None:
        """Write down one case. In `template`, `§x§` is the secret (or the given value) called x.
        A template that begins with a line break is dedented, and loses that break.

        The second half of a long secret counts as a secret too, so that one that is cut short
        does not pass; of a secret of several lines, each line counts.
        """
        text = textwrap.dedent(template[1:]) if template.startswith("\n") else template
        for key, value in {**(given or {}), **secrets}.items():
            assert f"§{key}§" in text, f"{family}/{name} does not use {key}"
            text = text.replace(f"§{key}§", value)
        assert "§" not in text, f"{family}/{name} has a mark without a value"
        parts = tuple(part for value in secrets.values() for part in leaks(value))
        self.append(Case(family, name, text, parts, tuple(keeps)))


def leaks(secret: str) -> Iterator[str]:
    """What of a secret may not survive: the whole and its second half, or its lines."""
    if "\n" in secret:
        for line in secret.splitlines():
            if len(line.strip()) >= 8 and not line.strip().startswith("-----"):
                yield line.strip()
        return
    yield secret
    if len(secret) >= 12:
        yield secret[len(secret) // 2 :]


def numbers(seed: str) -> Iterator[int]:
    """An endless row of bytes that depends on the seed alone."""
    count = 0
    while True:
        yield from hashlib.sha256(f"{seed}/{count}".encode()).digest()
        count += 1


def drawn(seed: str, alphabet: str, length: int) -> str:
    row = numbers(seed)
    return "".join(alphabet[next(row) % len(alphabet)] for _ in range(length))


def alnum(seed: str, length: int) -> str:
    return drawn(seed, ALNUM, length)


def upper(seed: str, length: int) -> str:
    """As in the id of an AWS key: capitals and the digits of base32."""
    return drawn(seed, string.ascii_uppercase + "234567", length)


def lower(seed: str, length: int) -> str:
    return drawn(seed, string.ascii_lowercase + string.digits, length)


def hexes(seed: str, length: int) -> str:
    return drawn(seed, "0123456789abcdef", length)


def digits(seed: str, length: int) -> str:
    """Digits of which the first is not zero."""
    return drawn(seed, "123456789", 1) + drawn(f"{seed}/rest", string.digits, length - 1)


def base64url(seed: str, length: int) -> str:
    """Begins and ends with a letter or digit, so that a word ends where it ends."""
    return alnum(f"{seed}/a", 1) + drawn(seed, URLSAFE, length - 2) + alnum(f"{seed}/z", 1)


def blob(seed: str, size: int) -> bytes:
    row = numbers(seed)
    return bytes(next(row) for _ in range(size))


def base64std(seed: str, size: int) -> str:
    """Standard base64, with padding, of that many bytes."""
    return base64.b64encode(blob(seed, size)).decode()


def uuid(seed: str) -> str:
    h = hexes(seed, 32)
    return f"{h[:8]}-{h[8:12]}-4{h[13:16]}-a{h[17:20]}-{h[20:]}"


def word(seed: str) -> str:
    row = numbers(seed)
    return WORDS[(next(row) * 256 + next(row)) % len(WORDS)]


def words_password(seed: str, symbols: str = "!&.-+") -> str:
    """A password as people make them: words, a digit in place of a letter, a year, a symbol."""
    row = numbers(f"{seed}/password")
    one, two = word(f"{seed}/1"), word(f"{seed}/2")
    mark = symbols[next(row) % len(symbols)]
    number = str(next(row) % 90 + 10)
    style = next(row) % 5
    if style == 0:
        return f"{one.translate(LEET).capitalize()}{mark}{number[0]}x{two[0]}"
    if style == 1:
        return f"{one}{mark}{two.capitalize()}{mark}{number}"
    if style == 2:
        return f"{one.capitalize()}{two.capitalize()}{number}{mark}{number[1]}"
    if style == 3:
        return f"{one.capitalize()}{two.translate(LEET)}{mark}20{number[1]}{number[0]}"
    return f"{one.translate(LEET)}{mark}{two}{number}"


def plain_password(seed: str) -> str:
    """A password of people that needs no quotes anywhere."""
    return words_password(seed, symbols="-_")


def short_password(seed: str) -> str:
    """A word and two digits."""
    return word(f"{seed}/short") + digits(f"{seed}/short", 2)


def phrase(seed: str, count: int = 4) -> str:
    """A passphrase of words between blanks."""
    return " ".join(word(f"{seed}/phrase/{n}") for n in range(count))


def checked(prefix: str, seed: str) -> str:
    """A token that ends in its own CRC-32 in base 62, as GitHub's and npm's do."""
    body = alnum(seed, 30)
    left, tail = zlib.crc32(body.encode()), ""
    for _ in range(6):
        left, digit = divmod(left, 62)
        tail = ALNUM[digit] + tail
    return f"{prefix}{body}{tail}"


def packed(value: object) -> str:
    """JSON in base64 for URLs, as in a JWT."""
    text = json.dumps(value, separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def jwt(seed: str, **claims: str | int) -> str:
    head = packed({"alg": "HS256", "typ": "JWT"})
    body = packed({"sub": digits(seed, 10), "iat": 1700000000, **claims})
    return f"{head}.{body}.{base64url(f'{seed}/signature', 43)}"


def pem(label: str, seed: str, size: int = 240) -> str:
    lines = textwrap.wrap(base64std(seed, size), 64)
    return "\n".join([f"-----BEGIN {label}-----", *lines, f"-----END {label}-----"])


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def basic(user: str, password: str) -> str:
    """What stands behind `Basic` in a header."""
    return encoded(f"{user}:{password}")
