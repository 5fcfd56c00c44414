"""`Redactor`: which rules there are, in which order they look, and what comes to stand there."""

from __future__ import annotations

import base64
import functools
import json
import re
import urllib.parse
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

from ..errors import InvalidValue
from .assigned import assignments, elements
from .names import DEFAULT_KEYS, Names
from .shapes import addresses, blocks, schemes, shapes
from .spans import PLACEHOLDER, Finder, Span, apart, masked, only_placeholders
from .walk import Walk

OnHit: TypeAlias = Callable[[str, str], None]
Mask: TypeAlias = Callable[[str, str], str]

NESTED = 1 << 18  # characters of JSON in a text that are looked through as a value
_INDENT = re.compile(r"[\[{]\r?\n([ \t]{1,8})")
AGAIN = 6  # looks at what a look has left, until it leaves all; more than one is rare
CLEAN = 4096  # short texts without a secret that are remembered
SHORTEST = 4  # characters of a value to learn; a shorter one would be found everywhere


class Redactor:
    """Masks secrets in values and texts; what it is given stays as it was.

    `keys` are names of secrets, compared by whole words. `values` are known secrets, found
    also where they are escaped, in a URL, or in base64. `shapes` says whether texts are
    searched for what looks like a secret. `on_hit(rule, path)` is told of each hit.

    `replacement` stands in the place of a secret; a function is asked with the rule and the
    secret. `labels` are names of what else is to be masked, each under its rule, and
    `finders` look through the texts when all other rules have.
    """

    def __init__(
        self,
        keys: Iterable[str] = DEFAULT_KEYS,
        values: Iterable[str] = (),
        replacement: str | Mask = "[redacted]",
        shapes: bool = True,
        on_hit: OnHit | None = None,
        labels: Mapping[str, Iterable[str]] | None = None,
        finders: Iterable[Finder] = (),
    ) -> None:
        self.shapes = shapes
        self.on_hit = on_hit
        self._replace = replacement if callable(replacement) else lambda rule, secret: replacement
        self._fixed = "" if callable(replacement) else replacement
        self._named = Names(keys, labels or {})
        self._finders = tuple(finders)
        self._learned: dict[str, str] = {}
        self._clean: set[str] = set()
        self.learn(*values)

    def learn(self, *values: str) -> None:
        """Mask these from now on, and the forms in which they travel."""
        known = dict(self._learned)
        for value in values:
            if not isinstance(value, str) or len(value.strip()) < SHORTEST:
                raise InvalidValue(
                    field="value",
                    problem=f"is not a text of {SHORTEST} characters or more",
                    remedy="learn whole secrets; shorter ones would be found in any text",
                    limit=SHORTEST,
                )
            for form in forms(value):
                known.setdefault(form, value)
        self._learned = dict(sorted(known.items(), key=lambda item: (-len(item[0]), item[0])))
        self._clean = set()

    def names(self, key: str) -> bool:
        """Whether what stands under `key` is secret."""
        return self.named(key) is not None

    def named(self, key: str) -> str | None:
        """How `key` says that what stands under it is secret: see `Names.find`."""
        return self._named.find(key)

    def __call__(self, value: Any, path: str = "") -> Any:
        """A copy with all secrets masked.

        Containers keep their shape, and Structs their type. Bytes and what nests too deep are
        named instead of kept, exceptions and unknown objects become their text, and what
        holds itself is `[circular]` there.
        """
        return Walk(self).value(value, path, 0)

    def text(self, text: str, path: str = "") -> str:
        """The text with all secrets in it masked."""
        if text in self._clean:
            return text
        found = self._text(text, path)
        for _ in range(AGAIN if found != text else 0):
            before, found = found, self._text(found, path)
            if found == before:
                break
        if found == text and len(text) <= 256:
            # Names and short texts come again and again.
            if len(self._clean) >= CLEAN:
                self._clean = set()
            self._clean.add(text)
        return found

    def _text(self, text: str, path: str) -> str:
        if self.shapes and text[:1] in ("{", "["):
            text = self._nested(text, path)
        text = self._known(text, path)
        if self.shapes:
            for look in (addresses, blocks, shapes, schemes):
                text = self.mask(text, look(text), path)
            if self._named and (":" in text or "=" in text or "--" in text):
                text = self.mask(text, assignments(text, self.named), path)
            if self._named and "</" in text:
                text = self.mask(text, elements(text, self.named), path)
        for finder in self._finders:
            text = self.mask(text, finder(text), path)
        return text

    def _nested(self, text: str, path: str) -> str:
        """JSON in a text, or lines of it, as the values that they are."""
        if len(text) <= NESTED and text.rstrip()[-1:] in ("}", "]"):
            try:
                return self._json(text, json.loads(text), path)
            except (ValueError, RecursionError):
                pass
        if "}\n{" not in text:
            return text
        lines = (self._nested(line, path) for line in text.split("\n"))
        return "\n".join(lines)

    def _json(self, text: str, value: Any, path: str) -> str:
        masked = Walk(self).value(value, path, 0)
        if masked == value:
            return text
        lead = _INDENT.match(text)
        return json.dumps(
            masked,
            ensure_ascii="\\u" in text,
            separators=None if '": ' in text else (",", ":"),
            indent=lead[1] if lead else None,
        )

    @property
    def longest(self) -> int:
        """Characters of the longest form of a known secret."""
        return max(map(len, self._learned), default=0)

    def cut(self, text: str) -> int:
        """Where a text that goes on can be cut in two: no known secret has begun before and may
        end behind it, and none that is there stands across it."""
        place = len(text)
        for size in range(min(self.longest - 1, len(text)), 0, -1):
            if any(form.startswith(text[-size:]) for form in self._learned):
                place -= size
                break
        found = True
        while found:
            found = False
            for form in self._learned:
                start = text.find(form, max(0, place - len(form) + 1), place + len(form) - 1)
                if 0 <= start < place:
                    place, found = start, True
        return place

    def number(self, value: Any, path: str = "") -> Any:
        """The number, or what stands in its place where it is a known secret, or a finder's."""
        if not (self._learned or self._finders) or not isinstance(value, (int, float)):
            return value
        plain = str(value)
        if len(plain) < SHORTEST:
            return value
        text = self._known(plain, path)
        for finder in self._finders:
            text = self.mask(text, finder(text), path)
        return value if text == plain else text

    def mask(self, text: str, spans: Iterable[Span], path: str) -> str:
        """The text with these spans of it masked; what is masked already stays."""
        out, done = [], 0
        for start, end, rule in apart(text, spans):
            if self._fixed and text[start:end] == self._fixed:
                continue
            out += [text[done:start], self.whole(rule, text[start:end], path)]
            done = end
        return "".join([*out, text[done:]]) if out else text

    def whole(self, rule: str, secret: str, path: str) -> str:
        """What stands in the place of a secret, which is told as a hit."""
        if only_placeholders(secret):
            return secret
        if self.on_hit is not None:
            self.on_hit(rule, path)
        return self._replace(rule, secret)

    def _known(self, text: str, path: str) -> str:
        for form, value in self._learned.items():
            if form not in text:
                continue
            put = functools.partial(self.whole, "value", value, path)
            if masked(text):
                pattern = re.compile(f"({PLACEHOLDER.pattern})|{re.escape(form)}")
                text = pattern.sub(functools.partial(_kept, put), text)
            else:
                text = "".join(
                    piece if n == 0 else put() + piece for n, piece in enumerate(text.split(form))
                )
        return text


def _kept(put: Callable[[], str], found: re.Match[str]) -> str:
    """A placeholder as it is, anything else as `put` says."""
    return found[1] or put()


def forms(value: str) -> set[str]:
    """A secret as it may stand in a text: plain, escaped, in a URL, within base64."""
    found = {value, repr(value)[1:-1]}
    for _ in range(2):  # as JSON, and as JSON within JSON
        found |= {
            json.dumps(form, ensure_ascii=plain)[1:-1] for form in found for plain in (True, False)
        }
    data = value.encode(errors="surrogatepass")
    found |= {urllib.parse.quote(data, safe=""), urllib.parse.quote_plus(data)}
    for before in range(3 if len(data) >= 8 else 0):
        # Where it begins within base64 decides its letters; those at the rims are shared.
        text = base64.b64encode(b"\0" * before + data).decode().rstrip("=")
        whole = (before + len(data)) * 8 // 6
        core = text[-(-before * 8 // 6) : whole]
        found |= {core, core.replace("+", "-").replace("/", "_")}
    return {form for form in found if len(form) >= SHORTEST}
