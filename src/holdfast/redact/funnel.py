"""`Redactor`: which rules there are, in which order they look, and what comes to stand there."""

from __future__ import annotations

import base64
import functools
import json
import re
import urllib.parse
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

from ..errors import InvalidValue
from .judge import Place, judge
from .names import DEFAULT_KEYS, names_of
from .scan import scan
from .spans import PLACEHOLDER, Finder, Span, apart, masked, only_placeholders
from .walk import Under, Walk

OnHit: TypeAlias = Callable[[str, str], None]


class Seen(NamedTuple):
    """A value that was replaced (`secret`), or that is doubtful, and why."""

    rule: str
    path: str
    reason: str
    secret: bool
    value: str


OnSeen: TypeAlias = Callable[[Seen], None]
Mask: TypeAlias = Callable[[str, str], str]

_REASONS = {
    "value": "it is a registered secret",
    "key": "it stands under the name of a secret",
    "path": "it is a local path",
    "person": "it is registered",
}
NESTED = 1 << 18  # characters of JSON in a text that are looked through as a value
_LEAF = re.compile(r'"(?:[^"\\]|\\.)*+"|[^\s\[\]{},:"]++', re.DOTALL)
_WORDS = re.compile(r"[A-Za-z]{1,24}(?:[:._/ -][A-Za-z]{1,24}){0,7}")
AGAIN = 6  # looks at what a look has left, until it leaves all; more than one is rare
SHORT = 1 << 16  # characters of a text that is looked at again as a whole
AROUND = 1 << 10  # characters on each side of what was replaced in a longer one
CLEAN = 4096  # short texts without a secret that are remembered
SHORTEST = 4  # characters of a value to learn; a shorter one would be found everywhere


class Redactor:
    """Masks secrets in values and texts; what it is given stays as it was.

    `keys` are names of secrets, compared by whole words. `values` are known secrets, found
    also where they are escaped, in a URL, or in base64. `shapes` says whether texts are
    searched for what looks like a secret. `on_hit(rule, path)` is told of each hit.

    `strict` masks doubtful values as well. `on_seen` is told of each value that is masked and of
    each that is doubtful, with the reason; it is for a review, and the only one that sees values.

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
        """Mask these from now on, and the forms in which they travel, as hits of `rule`."""
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
                known.setdefault(form, (value, rule))
        self._learned = dict(sorted(known.items(), key=lambda item: (-len(item[0]), item[0])))
        self._clean = set()

    def names(self, key: str) -> bool:
        """Whether what stands under `key` is secret."""
        return self.named(key) is not None

    def named(self, key: str) -> str | None:
        """How `key` says that what stands under it is secret: see `Names.find`."""
        return self._named.find(key)

    def judged(self, under: Under, value: str, path: str) -> bool:
        """Whether a value that stands as data under the name of a secret is one."""
        found = judge(under.name, under.says, value, Place.FIELD)
        if found.doubtful and self.on_seen is not None and not self.strict:
            self.on_seen(Seen("key", path, found.reason, False, value))
        return found.secret or (found.doubtful and self.strict)

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
        near = len(text) > SHORT and text[:1] not in ("{", "[")  # JSON is read as a whole
        look = self._near if near else self._text
        for _ in range(AGAIN if found != text else 0):
            before, found = found, look(found, path)
            if found == before:
                break
        if found == text and len(text) <= 256:
            # Names and short texts come again and again.
            if len(self._clean) >= CLEAN:
                self._clean = set()
            self._clean.add(text)
        return found

    def _text(self, text: str, path: str) -> str:
        read = None  # the text, once it was read as the values that it holds
        if self.shapes and text[:1] in ("{", "["):
            read = self._nested(text, path)
        if read is not None:
            return self._known(read, path)  # finders have looked at the values that it holds
        text = self._known(text, path)
        if self.shapes:
            text = self._scanned(text, path)
        for finder in self._finders:
            text = self.mask(text, finder(text), path)
        return text

    def _near(self, text: str, path: str) -> str:
        """A long text of which only what stands around placeholders is looked at once more."""
        out, done = [], 0
        for low, high in _around(
            text, re.compile(re.escape(self._fixed)) if self._fixed else PLACEHOLDER
        ):
            out += [text[done:low], self._scanned(text[low:high], path)]
            done = high
        return "".join([*out, text[done:]])

    def found(self, text: str) -> list[Span]:
        """Where a text holds what has the shape of a secret, or stands under the name of one."""
        return [Span(*one[:4]) for one in scan(text, self._named) if one.secret]

    def _scanned(self, text: str, path: str) -> str:
        """The text without what a scan finds in it."""
        doubts = self.strict or self.on_seen is not None
        found = list(scan(text, self._named, doubts=doubts))
        if self.on_seen is not None and not self.strict:
            for one in found:
                value = text[one.start : one.end]
                if not one.secret and not only_placeholders(value):
                    self.on_seen(Seen(one.rule, path, one.reason, False, value))
        spans = (Span(*one[:4]) for one in found if one.secret or self.strict)
        return self.mask(text, spans, path)

    def _nested(self, text: str, path: str) -> str | None:
        """JSON in a text, or lines of it, as the values that they are; None if it is something
        else."""
        if len(text) <= NESTED and text.rstrip()[-1:] in ("}", "]"):
            try:
                value = json.loads(text, object_pairs_hook=_once)
                if (whole := self._json(text, value, path)) is not None:
                    return whole
            except (ValueError, RecursionError):
                pass
        if "}\n{" not in text:
            return None
        lines = text.split("\n")
        read = [self._nested(line, path) if line.strip() else line for line in lines]
        return "\n".join(
            self._scanned(line, path) if kept is None else kept
            for line, kept in zip(lines, read, strict=True)
        )

    def _json(self, text: str, value: Any, path: str) -> str | None:
        """The JSON with its values masked; None if it is too deep or too much to be kept."""
        walk = Walk(self)
        masked = walk.value(value, path, 0)
        if walk.cut:
            return None
        return text if masked == value else _patched(text, value, masked)

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
        text = self._given(plain, path)
        return value if text == plain else text

    def key(self, key: str, path: str = "") -> str:
        """The name of a field; plain words have no shape of a secret."""
        return self._given(key, path) if _WORDS.fullmatch(key) else self.text(key, path)

    def _given(self, text: str, path: str) -> str:
        """The text without known secrets and what finders find."""
        text = self._known(text, path)
        for finder in self._finders:
            text = self.mask(text, finder(text), path)
        return text

    def mask(self, text: str, spans: Iterable[Span], path: str) -> str:
        """The text with these spans of it masked; what is masked already stays."""
        out, done = [], 0
        for start, end, rule, reason in apart(text, spans):
            if self._fixed and text[start:end] == self._fixed:
                continue
            out += [text[done:start], self.whole(rule, text[start:end], path, reason)]
            done = end
        return "".join([*out, text[done:]]) if out else text

    def whole(self, rule: str, secret: str, path: str, reason: str = "") -> str:
        """What stands in the place of a secret, which is told as a hit."""
        if only_placeholders(secret):
            return secret
        if self.on_seen is not None:
            self.on_seen(Seen(rule, path, reason or _REASONS.get(rule, rule), True, secret))
        if self.on_hit is not None:
            self.on_hit(rule, path)
        return self._replace(rule, secret)

    def _known(self, text: str, path: str) -> str:
        for form, (value, rule) in self._learned.items():
            if form not in text:
                continue
            reason = "" if rule == "value" else "it was found to be a secret, here or elsewhere"
            put = functools.partial(self.whole, rule, value, path, reason)
            if masked(text):
                pattern = re.compile(f"({PLACEHOLDER.pattern})|{re.escape(form)}")
                text = pattern.sub(functools.partial(_kept, put), text)
            else:
                text = "".join(
                    piece if n == 0 else put() + piece for n, piece in enumerate(text.split(form))
                )
        return text


def _around(text: str, placeholder: re.Pattern[str]) -> Iterator[tuple[int, int]]:
    """The lines around each placeholder, or the words where they are long; none twice."""
    low = high = 0
    for found in placeholder.finditer(text):
        start = max(high, text.rfind("\n", max(0, found.start() - AROUND), found.start()) + 1)
        if found.start() - start > AROUND:
            start = text.rfind(" ", found.start() - AROUND, found.start()) + 1 or found.start()
        end = text.find("\n", found.end(), found.end() + AROUND)
        if end < 0:
            end = max(found.end(), text.rfind(" ", found.end(), found.end() + AROUND))
        if start > high and high:
            yield low, high
            low = start
        elif not high:
            low = start
        high = max(high, end)
    if high:
        yield low, high


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object; one with a name twice is read as text, since one of its values would be lost."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name stands twice in an object")
    return found


def _patched(text: str, value: Any, masked: Any) -> str | None:
    """JSON with only those leaves and names written anew that have changed; None if they cannot be
    told apart in the text."""
    old, new = list(_leaves(value)), list(_leaves(masked))
    places = [found.span() for found in _LEAF.finditer(text)]
    if not len(old) == len(new) == len(places):
        return None
    out, done, ascii_only = [], 0, "\\u" in text
    for before, after, (start, end) in zip(old, new, places, strict=True):
        if before != after:
            out += [text[done:start], json.dumps(after, ensure_ascii=ascii_only)]
            done = end
    return "".join([*out, text[done:]])


def _leaves(value: Any) -> Iterator[Any]:
    """Names and leaves of a value, in the order in which JSON writes them."""
    if isinstance(value, dict):
        for name, item in value.items():
            yield name
            yield from _leaves(item)
    elif isinstance(value, list):
        for item in value:
            yield from _leaves(item)
    else:
        yield value


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
