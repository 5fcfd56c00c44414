"""`Redactor`: applies all rules to values and strings, and replaces the secrets that they find."""

from __future__ import annotations

import base64
import functools
import json
import re
import urllib.parse
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

from ..errors import InvalidValue
from .names import DEFAULT_KEYS, names_of
from .scan import scan
from .spans import PLACEHOLDER, Bounds, Finder, Span, masked, merged, only_placeholders, spliced
from .traversal import Traversal, ValueName
from .verdict import Syntax, judge

OnHit: TypeAlias = Callable[[str, str], None]


class Seen(NamedTuple):
    """A value that was masked (`secret`), or that may be a secret, with the reason.

    See [redaction](../redaction.md).
    """

    rule: str
    path: str
    reason: str
    secret: bool
    value: str


OnSeen: TypeAlias = Callable[[Seen], None]
Mask: TypeAlias = Callable[[str, str], str]

_REASONS = {
    "value": "it is a registered secret",
    "key": "it is the value of a name that denotes a secret",
    "path": "it is a local path",
    "person": "it is a registered personal text",
}
NESTED = 1 << 18  # characters of a text that are parsed as JSON
_LEAF = re.compile(r'"(?:[^"\\]|\\.)*+"|[^\s\[\]{},:"]++', re.DOTALL)
_WORDS = re.compile(r"[A-Za-z]{1,24}(?:[:._/ -][A-Za-z]{1,24}){0,7}")
PASSES = 6  # maximum passes over a text after a replacement; more than one is rare
SHORT = 1 << 16  # characters of a text that is searched again as a whole
AROUND = 1 << 10  # characters on each side of a replacement that are searched again in long text
CLEAN = 4096  # short texts without a secret that are cached
SHORTEST = 4  # minimum length of a value to learn; shorter values occur in ordinary text


class Redactor:
    """Masks secrets in copies of values and strings.

    `keys` are names of secrets, compared by whole words. `values` are known secrets; they are also
    found when they are escaped, in a URL, or in base64. With `shapes`, text is searched for
    anything that looks like a secret. `on_hit(rule, path)` is called for each match.

    `strict` also masks possible secrets. `on_seen` is called for each masked value and each
    possible secret, with the reason; it is meant for reviews, and is the only callback that
    receives values.

    `replacement` replaces a secret; if it is a function, it is called with the rule and the secret.
    `labels` are additional names to mask, by rule. `finders` search the strings after all other
    rules.

    See [redaction](../redaction.md).
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
        strict: bool = False,
        on_seen: OnSeen | None = None,
    ) -> None:
        self.shapes = shapes
        self.strict = strict
        self.on_seen = on_seen
        self.on_hit = on_hit
        self._replace = replacement if callable(replacement) else lambda rule, secret: replacement
        self._fixed = "" if callable(replacement) else replacement
        marked = ((rule, tuple(some)) for rule, some in (labels or {}).items())
        self._named = names_of(tuple(keys), tuple(marked))
        self._finders = tuple(finders)
        self._learned: dict[str, tuple[str, str]] = {}  # by form: the value and its rule
        self._clean: set[str] = set()
        self.learn(*values)

    def learn(self, *values: str, rule: str = "value") -> None:
        """Mask these values and their encoded forms from now on, as matches of `rule`."""
        known = dict(self._learned)
        for value in values:
            if not isinstance(value, str) or len(value.strip()) < SHORTEST:
                raise InvalidValue(
                    field="value",
                    problem=f"must be a string of at least {SHORTEST} characters",
                    remedy="pass whole secrets, since shorter values would match ordinary text",
                    limit=SHORTEST,
                )
            for form in forms(value):
                known.setdefault(form, (value, rule))
        self._learned = dict(sorted(known.items(), key=lambda item: (-len(item[0]), item[0])))
        self._clean = set()

    def named(self, key: str) -> str | None:
        """Return the kind of the name `key`, or None for an ordinary name; see `Names.find`."""
        return self._named.find(key)

    def judged(self, name: ValueName, value: str, path: str) -> bool:
        """Return whether `value` is a secret. It is the value of a field that is named like a
        secret.
        """
        found = judge(name.name, name.says, value, Syntax.FIELD)
        if found.doubtful and self.on_seen is not None and not self.strict:
            self.on_seen(Seen("key", path, found.reason, False, value))
        return found.secret or (found.doubtful and self.strict)

    def __call__(self, value: Any, path: str = "") -> Any:
        """Return a copy with all secrets masked.

        Containers keep their structure, and Structs their type. Bytes and values that are nested
        too deep are replaced by a description, exceptions and unknown objects by their text, and
        circular references by `[circular]`.
        """
        return Traversal(self).value(value, path, 0)

    def text(self, text: str, path: str = "") -> str:
        """Return the text with all secrets masked."""
        if text in self._clean:
            return text
        found = self._text(text, path)
        near = len(text) > SHORT and not text.startswith(("{", "["))  # JSON is read as a whole
        again = self._near if near else self._text
        for _ in range(PASSES if found != text else 0):
            before, found = found, again(found, path)
            if found == before:
                break
        if found == text and len(text) <= 256:
            # Names and short texts are often repeated.
            if len(self._clean) >= CLEAN:
                self._clean = set()
            self._clean.add(text)
        return found

    def _text(self, text: str, path: str) -> str:
        if (
            self.shapes
            and text.startswith(("{", "["))
            and (read := self._nested(text, path)) is not None
        ):
            return self._known(read, path)  # finders have searched its values
        text = self._known(text, path)
        if self.shapes:
            text = self._scanned(text, path)
        return self._found(text, path)

    def _near(self, text: str, path: str) -> str:
        """Search long text again, but only near the placeholders of earlier replacements."""
        fixed = re.compile(re.escape(self._fixed)) if self._fixed else PLACEHOLDER
        around = _around(text, fixed)
        pieces = ((low, high, self._scanned(text[low:high], path)) for low, high in around)
        return spliced(text, pieces)

    def found(self, text: str) -> list[Span]:
        """Return the spans of a string that have the format of a secret, or follow the name of a
        secret.
        """
        return [Span(*one[:4]) for one in scan(text, self._named) if one.secret]

    def _scanned(self, text: str, path: str) -> str:
        """Mask the secrets in a string that `scan` finds."""
        doubts = self.strict or self.on_seen is not None
        found = list(scan(text, self._named, doubts=doubts))
        for one in found if self.on_seen is not None and not self.strict else ():
            value = text[one.start : one.end]
            if self.on_seen is not None and not one.secret and not only_placeholders(value):
                self.on_seen(Seen(one.rule, path, one.reason, False, value))
        spans = (Span(*one[:4]) for one in found if one.secret or self.strict)
        return self.mask(text, spans, path)

    def _nested(self, text: str, path: str) -> str | None:
        """Return the text masked if it is JSON or JSON lines, otherwise None."""
        if len(text) <= NESTED and text.rstrip()[-1:] in ("}", "]"):
            try:
                value = json.loads(text, object_pairs_hook=_unique)
                if (whole := self._json(text, value, path)) is not None:
                    return whole
            except (ValueError, RecursionError):
                pass
        if "}\n{" not in text:
            return None
        return "\n".join(
            self._nested(line, path) or self._scanned(line, path) for line in text.split("\n")
        )

    def _json(self, text: str, value: Any, path: str) -> str | None:
        """Mask the values of JSON; None if it is nested too deep or too large."""
        traversal = Traversal(self)
        masked = traversal.value(value, path, 0)
        if traversal.cut:
            return None
        return text if masked == value else _patched(text, value, masked)

    @property
    def longest(self) -> int:
        """The maximum number of characters in any form of a known secret."""
        return max(map(len, self._learned), default=0)

    def cut(self, text: str) -> int:
        """Return the position at which unfinished text can be split without splitting a known
        secret or the beginning of one.
        """
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
        """Return the number, or its replacement if it is a known secret or a finder finds it."""
        if not (self._learned or self._finders) or not isinstance(value, (int, float)):
            return value
        plain = str(value)
        if len(plain) < SHORTEST:
            return value
        text = self._found(self._known(plain, path), path)
        return value if text == plain else text

    def key(self, key: str, path: str = "") -> str:
        """Mask secrets in the name of a field; plain words are not scanned."""
        if not _WORDS.fullmatch(key):
            return self.text(key, path)
        return self._found(self._known(key, path), path)

    def _found(self, text: str, path: str) -> str:
        """Mask the spans of a string that the `finders` find."""
        for finder in self._finders:
            text = self.mask(text, finder(text), path)
        return text

    def mask(self, text: str, spans: Iterable[Span], path: str) -> str:
        """Mask these spans of the text; placeholders are kept."""
        pieces = (
            (start, end, self.whole(rule, text[start:end], path, reason))
            for start, end, rule, reason in merged(text, spans)
            if not self._fixed or text[start:end] != self._fixed
        )
        return spliced(text, pieces)

    def whole(self, rule: str, secret: str, path: str, reason: str = "") -> str:
        """Return the replacement for a value that is entirely a secret, and report it as a match of
        `rule`.
        """
        if only_placeholders(secret):
            return secret
        if self.on_seen is not None:
            self.on_seen(Seen(rule, path, reason or _REASONS.get(rule, rule), True, secret))
        if self.on_hit is not None:
            self.on_hit(rule, path)
        return self._replace(rule, secret)

    def _known(self, text: str, path: str) -> str:
        """Mask the known secrets in a string."""
        for form, (value, rule) in self._learned.items():
            if form not in text:
                continue
            reason = "" if rule == "value" else "it was found to be a secret, here or elsewhere"
            put = functools.partial(self.whole, rule, value, path, reason)
            if masked(text):
                pattern = re.compile(f"({PLACEHOLDER.pattern})|{re.escape(form)}")
                text = pattern.sub(functools.partial(_kept, put), text)
            else:
                first, *rest = text.split(form)
                text = first + "".join(put() + piece for piece in rest)
        return text


def _around(text: str, placeholder: re.Pattern[str]) -> Iterator[Bounds]:
    """Return the lines around each placeholder, or the words if lines are long; without
    overlaps.
    """
    low = high = 0
    for found in placeholder.finditer(text):
        start = max(high, text.rfind("\n", max(0, found.start() - AROUND), found.start()) + 1)
        if found.start() - start > AROUND:
            start = text.rfind(" ", found.start() - AROUND, found.start()) + 1 or found.start()
        end = text.find("\n", found.end(), found.end() + AROUND)
        if end < 0:
            end = max(found.end(), text.rfind(" ", found.end(), found.end() + AROUND))
        if start > high:
            if high:
                yield low, high
            low = start
        high = max(high, end)
    if high:
        yield low, high


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Build an object from pairs. Raises `ValueError` if a name is repeated: such JSON is masked as
    text, so that every value is kept.
    """
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("an object has a repeated name")
    return found


def _patched(text: str, value: Any, masked: Any) -> str | None:
    """Return the JSON text with only the changed names and values rewritten; None if they cannot be
    located.
    """
    old, new = list(leaves(value)), list(leaves(masked))
    places = [found.span() for found in _LEAF.finditer(text)]
    if not len(old) == len(new) == len(places):
        return None
    ascii_only = "\\u" in text
    pieces = (
        (*place, json.dumps(after, ensure_ascii=ascii_only))
        for before, after, place in zip(old, new, places, strict=True)
        if before != after
    )
    return spliced(text, pieces)


def leaves(value: Any) -> Iterator[Any]:
    """Yield the names and scalar values of a JSON value, in the order of its text."""
    if isinstance(value, dict):
        for name, item in value.items():
            yield name
            yield from leaves(item)
    elif isinstance(value, list):
        for item in value:
            yield from leaves(item)
    else:
        yield value


def _kept(put: Callable[[], str], found: re.Match[str]) -> str:
    """Return the match unchanged if it is a placeholder, otherwise the result of `put`."""
    return found[1] or put()


def forms(value: str) -> set[str]:
    """Return the forms in which text may contain a secret: plain, escaped, in a URL, in base64.

    See [redaction](../redaction.md).
    """
    found = {value, repr(value)[1:-1]}
    for _ in range(2):  # as JSON, and as JSON within JSON
        found |= {
            json.dumps(form, ensure_ascii=plain)[1:-1] for form in found for plain in (True, False)
        }
    data = value.encode(errors="surrogatepass")
    found |= {urllib.parse.quote(data, safe=""), urllib.parse.quote_plus(data)}
    for before in range(3 if len(data) >= 8 else 0):
        # The letters depend on the offset; the first and last are shared with the neighbours.
        text = base64.b64encode(b"\0" * before + data).decode().rstrip("=")
        whole = (before + len(data)) * 8 // 6
        core = text[-(-before * 8 // 6) : whole]
        found |= {core, core.replace("+", "-").replace("/", "_")}
    return {form for form in found if len(form) >= SHORTEST}
