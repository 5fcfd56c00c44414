"""The one funnel that keeps secrets in: values and texts go in, and come out masked.

Three things are secret: what stands under a secret's name (`api_key`, `Authorization`), the
values that the program has told us (`learn`), and what has the shape of a secret wherever it
stands in a text. Pure, and linear in the length of a text whatever it holds.
"""

from __future__ import annotations

import base64
import dataclasses
import datetime
import decimal
import functools
import json
import re
import urllib.parse
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Raw, Struct

from .errors import InvalidValue

OnHit: TypeAlias = Callable[[str, str], None]
Named: TypeAlias = Literal["all", "token", "tokens"] | None

DEFAULT_KEYS = (
    *("password", "passwd", "pwd", "passphrase", "secret", "token", "credential"),
    *("authorization", "cookie", "api_key", "apikey", "private_key", "access_key", "secret_key"),
    *("encryption_key", "signing_key", "connection_string"),
)
SHORTEST = 4  # characters of a value to learn; a shorter one would be found everywhere
DEPTH, VALUES = 128, 1_000_000  # how deep a value may nest, and how much it may hold

_WORDS = re.compile(r"[A-Z]+(?![^\W\d_A-Z])|[A-Z]?[^\W\d_A-Z]+|\d+")
# A name that goes on like this is about a secret and none itself.
_ABOUT = {
    *("count", "counts", "limit", "limits", "budget", "usage", "used", "left", "total", "cost"),
    *("price", "rate", "size", "length", "type", "name", "policy", "ttl", "expiry", "expires"),
    *("expiration", "required"),
}
# `tokens` alone are counted; tokens of these are kept secret.
_OWNED = {"access", "refresh", "auth", "oauth", "api", "bearer", "session", "csrf", "device"}
_HEADERS = {"authorization", "cookie"}
_PLAIN = {"none", "null", "true", "false", "str", "string", "undefined", "required", "optional"}
_PLAIN |= {"int", "float", "bool", "bytes", "any"}
_SCHEMA = {"type", "$ref", "anyOf", "oneOf", "allOf"}
_SCALARS = (int, float, decimal.Decimal, datetime.date, datetime.time, datetime.timedelta)

# In these, a run that can be long is possessive, and none can begin inside itself.
_NAMED = re.compile(
    r"(?<![\w-])(--)?-*+([^\W\d][\w-]*+)"
    r"(?:\\{0,3}[\"']?\s{0,4}+(?:[:=]=?>?)\s{0,4}+|(?(1)[ ]{1,4}+|(?!)))"
)
_QUOTED = re.compile(r"""(\\{0,3})(["'])""")
_UNQUOTED = re.compile(r"""[^\s"'`&,;<>()\[\]{}\\]*+""")
_LINE = re.compile(r"""[^\r\n"'\\]*+""")
_ADDRESS = re.compile(r"://([^\s/?#\"'<>]*+)")
_SLASHED = re.compile(r"[/?#][^\s\"'<>@]{0,256}+@(?=[\w.\[-])")
_SCHEME = re.compile(
    r"(?<![\w-])(?:(bearer)|(basic))(?:\s{1,4}|%20|\+)([\w.~+/=-]++)", re.IGNORECASE
)
_CHALLENGE = re.compile(
    r"(?:tokens?|auth|authentication|authorization|schemes?|realm|error|scope|credentials?)(?:=.*)?",
    re.IGNORECASE | re.DOTALL,
)
_BLOCK = re.compile(
    r"-----BEGIN [A-Z0-9 ]{0,40}?PRIVATE KEY(?: BLOCK)?-----"
    r"(?:[^-]++|-(?!----END))*+(?:-----END [A-Z0-9 ]{0,50}-----)?"
)
_JWT = re.compile(r"(?<![\w-])eyJ[\w-]{5,}+\.[\w-]{5,}+(?:\.[\w-]*+){0,3}")
_SHAPES = re.compile(
    r"(?<![A-Za-z0-9])(?:"
    r"(?P<sk>sk-(?=[A-Za-z_-]{0,64}\d)[\w-]{16,}+)"
    r"|(?P<github>gh[pousr]_[A-Za-z0-9]{20,}+|github_pat_\w{20,}+)"
    r"|(?P<gitlab>glpat-[\w-]{20,}+)"
    r"|(?P<slack>xox[a-z]-[A-Za-z0-9-]{10,}+|xapp-[A-Za-z0-9-]{10,}+)"
    r"|(?P<aws>A(?:KIA|SIA)[0-9A-Z]{16}(?![A-Za-z0-9]))"
    r"|(?P<google>AIza[\w-]{35,}+)"
    r"|(?P<stripe>[rsp]k_(?:live|test)_[A-Za-z0-9]{10,}+)"
    r"|(?P<huggingface>hf_[A-Za-z0-9]{30,}+)"
    r"|(?P<npm>npm_[A-Za-z0-9]{36,}+)"
    r")"
)
_BEGINNINGS = (
    *("sk-", "gh", "glpat-", "xox", "xapp-", "AKIA", "ASIA", "AIza"),
    *("k_live_", "k_test_", "hf_", "npm_"),
)


def words(name: str) -> tuple[str, ...]:
    """The words of a name in any manner: `X-Api-Key`, `api_key` and `apiKey` hold api, key."""
    return tuple(word.lower() for word in _WORDS.findall(name))


class Redactor:
    """Masks secrets in values and texts; what it is given stays as it was.

    `keys` are names of secrets, compared by whole words. `values` are known secrets, found
    also where they are escaped, in a URL, or in base64. `shapes` says whether texts are
    searched for what looks like a secret. `on_hit(rule, path)` is told of each hit.
    """

    def __init__(
        self,
        keys: Iterable[str] = DEFAULT_KEYS,
        values: Iterable[str] = (),
        replacement: str = "[redacted]",
        shapes: bool = True,
        on_hit: OnHit | None = None,
    ) -> None:
        self.replacement = replacement
        self.shapes = shapes
        self.on_hit = on_hit
        self._keys = frozenset(filter(None, map(words, keys)))
        self._longest = max(map(len, self._keys), default=0)
        self._learned: tuple[str, ...] = ()
        self._named = functools.lru_cache(maxsize=4096)(self._find_name)
        self.learn(*values)

    def learn(self, *values: str) -> None:
        """Mask these from now on, and the forms in which they travel."""
        known = set(self._learned)
        for value in values:
            if not isinstance(value, str) or len(value.strip()) < SHORTEST:
                raise InvalidValue(
                    field="value",
                    problem=f"is not a text of {SHORTEST} characters or more",
                    remedy="learn whole secrets; shorter ones would be found in any text",
                    limit=SHORTEST,
                )
            known.update(forms(value))
        self._learned = tuple(sorted(known, key=lambda form: (-len(form), form)))

    def names(self, key: str) -> bool:
        """Whether what stands under `key` is secret."""
        return self._named(key) is not None

    def __call__(self, value: Any) -> Any:
        """A copy with all secrets masked.

        Containers keep their shape, and Structs their type. Bytes and what nests too deep are
        named instead of kept, exceptions and unknown objects become their text, and what
        holds itself is `[circular]` there.
        """
        return _Walk(self).value(value, "", 0)

    def text(self, text: str, path: str = "") -> str:
        """The text with all secrets in it masked."""
        for form in self._learned:
            if form in text:
                self._hit("value", path, text.count(form))
                text = text.replace(form, self.replacement)
        if not self.shapes:
            return text
        if "://" in text:
            text = self._addresses(text, path)
        if "-----BEGIN " in text:
            text = self._sub("private-key", _BLOCK, text, path)
        if "eyJ" in text:
            text = self._sub("jwt", _JWT, text, path)
        if any(beginning in text for beginning in _BEGINNINGS):
            text = _SHAPES.sub(lambda found: self._mask(found.lastgroup or "shape", path), text)
        text = _SCHEME.sub(lambda found: self._header(found, path), text)
        if self._keys and (":" in text or "=" in text or "--" in text):
            text = self._assignments(text, path)
        return text

    def _mask(self, rule: str, path: str) -> str:
        self._hit(rule, path)
        return self.replacement

    def _hit(self, rule: str, path: str, times: int = 1) -> None:
        if self.on_hit is not None:
            for _ in range(times):
                self.on_hit(rule, path)

    def _sub(self, rule: str, pattern: re.Pattern[str], text: str, path: str) -> str:
        return pattern.sub(lambda _: self._mask(rule, path), text)

    def _header(self, found: re.Match[str], path: str) -> str:
        """`Bearer …` and `Basic …`, but not where prose speaks of them."""
        bearer, basic, secret = found.groups()
        if _CHALLENGE.fullmatch(secret) or (basic and secret.isalpha() and secret[1:].islower()):
            return found[0]
        return found[0][: -len(secret)] + self._mask("bearer" if bearer else "basic", path)

    def _addresses(self, text: str, path: str) -> str:
        """`scheme://user:password@host` without the password."""
        out, done = [], 0
        for found in _ADDRESS.finditer(text):
            start, end = found.span(1)
            if start < done:
                continue
            web = (
                text[max(0, found.start() - 5) : found.start()].lower().endswith(("http", "https"))
            )
            secret = _credentials(text, start, end, web=web)
            if secret is not None and text[slice(*secret)] != self.replacement:
                out += [text[done : secret[0]], self._mask("url", path)]
                done = secret[1]
        return "".join([*out, text[done:]])

    def _assignments(self, text: str, path: str) -> str:
        """`password=…`, `"apiKey": "…"`, `--token …`, `Cookie: …`, as they stand in a text."""
        out, done, at = [], 0, 0
        while found := _NAMED.search(text, at):
            at = found.end()
            named = self._named(found[2]) if len(found[2]) <= 128 else None
            if named is None or found[2].lower() == "tokens":  # in a text these are counted
                continue
            start, at = _assigned(text, at, header=words(found[2])[-1] in _HEADERS)
            secret = text[start:at]
            if self._spared(secret, named):
                continue
            out += [text[done:start], self._mask("key", path)]
            done = at
        return "".join([*out, text[done:]])

    def _spared(self, secret: str, named: Named) -> bool:
        if secret.lower() in _PLAIN or not secret.strip(" \\*.…"):
            return True
        if named == "tokens" and secret.replace(".", "").isdigit():
            return True
        return not secret.replace(self.replacement, "").strip()

    def _find_name(self, name: str) -> Named:
        """Whether a secret's name stands in it, by words: of one of `token` or `tokens` only
        texts are secret, since numbers count them."""
        parts = words(name)
        for start in range(len(parts)):
            for end in range(start + 1, min(start + self._longest, len(parts)) + 1):
                if parts[end : end + 1] and parts[end] in _ABOUT:
                    continue
                if found := self._is_key(parts, start, end):
                    return found
        return None

    def _is_key(self, parts: tuple[str, ...], start: int, end: int) -> Named:
        some = parts[start:end]
        one = (*some[:-1], some[-1].removesuffix("s"))
        if some[-1] == "tokens" and one == ("token",) and one in self._keys:
            owned = start > 0 and parts[start - 1] in _OWNED
            return "tokens" if owned or len(parts) == 1 else None
        if some not in self._keys and one not in self._keys:
            return None
        return "token" if some[-1] == "token" else "all"


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


def _credentials(text: str, start: int, end: int, *, web: bool) -> tuple[int, int] | None:
    """Where the secret of an address stands, whose authority goes from `start` to `end`."""
    if "@" not in text[start:end]:
        # A password with an unescaped slash looks like a host, its port and a path.
        port = text.find(":", start, end)
        if port < 0 or text[port + 1 : end].isdigit() or not (more := _SLASHED.match(text, end)):
            return None
        end = more.end()
    at = text.rindex("@", start, end)
    colon = text.find(":", start, at)
    if 0 <= colon < at - 1:
        return colon + 1, at
    name_end = at if colon < 0 else colon
    alone = name_end > start and (web or colon >= 0)  # a token in the place of the user
    return (start, name_end) if alone else None


def _assigned(text: str, at: int, *, header: bool) -> tuple[int, int]:
    """From where to where a value goes that begins at `at`; a quoted one to its closing quote,
    or to the end if there is none."""
    quote = _QUOTED.match(text, at)
    if quote is None:
        found = (_LINE if header else _UNQUOTED).match(text, at)
        return found.span() if found else (at, at)
    start, escapes, mark = quote.end(), quote[1], quote[2]
    end = start
    while (end := text.find(mark, end)) >= 0:
        before = 0
        while end - before > start and text[end - before - 1] == "\\":
            before += 1
        if before <= len(escapes) or (not escapes and before % 2 == 0):
            return start, end - min(before, len(escapes))
        end += 1
    return start, len(text)


class _Walk:
    """One walk through a value: where it is, and how much it has seen."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._above: set[int] = set()
        self._left = VALUES

    def value(self, value: Any, path: str, depth: int, named: Named = None) -> Any:
        """The value masked; `named` is how the name says that it is secret."""
        self._left -= 1
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, str):
            if named and value:
                return self._redactor._mask("key", path)
            return self._redactor.text(value, path)
        if isinstance(value, _SCALARS):
            return self._redactor._mask("key", path) if named == "all" else value
        if isinstance(value, uuid.UUID):
            return self._redactor._mask("key", path) if named else value
        if isinstance(value, (bytes, bytearray, memoryview)):
            return f"[{len(value)} bytes]"
        if depth >= DEPTH or self._left < 0:
            return "[too deep]" if depth >= DEPTH else "[too much]"
        if id(value) in self._above:
            return "[circular]"
        self._above.add(id(value))
        try:
            return self._container(value, path, depth + 1, named)
        finally:
            self._above.discard(id(value))

    def _container(self, value: Any, path: str, depth: int, named: Named) -> Any:
        if isinstance(value, Raw):
            return self._raw(value, path, depth, named)
        if isinstance(value, Mapping):
            return self._mapping(value, path, depth, named)
        if isinstance(value, (list, tuple, set, frozenset)):
            return self._items(value, path, depth, named)
        if isinstance(value, Struct):
            fields = {name: getattr(value, name) for name in value.__struct_fields__}
            masked = self._mapping(fields, path, depth, named)
            try:
                return msgspec.structs.replace(value, **masked)
            except Exception:  # it checks its fields, and refuses what is masked
                return masked
        if dataclasses.is_dataclass(value) and not isinstance(value, (type, BaseException)):
            fields = {f.name: getattr(value, f.name, None) for f in dataclasses.fields(value)}
            return self._mapping(fields, path, depth, named)
        return self.value(describe(value), path, depth, named)

    def _mapping(self, value: Mapping[Any, Any], path: str, depth: int, named: Named) -> Any:
        found: dict[Any, Any] = {}
        pair = _pair(value)
        for key, item in value.items():
            name, under = key, named
            if isinstance(key, str):
                name = self._redactor.text(key, path)
                under = named or self._redactor._named(key[:256])
            if key == "value" and pair is not None:
                under = under or self._redactor._named(pair[:256])
            if under and not named and _is_schema(path, item):
                under = None
            while name in found:
                name = f"{name}′"
            found[name] = self.value(item, f"{path}.{name}" if path else str(name), depth, under)
        return found

    def _items(self, value: Any, path: str, depth: int, named: Named) -> Any:
        if type(value) is tuple and len(value) == 2 and isinstance(value[0], str):
            # A header as a pair of its name and its value.
            under = named or self._redactor._named(value[0][:256])
            kept = self.value(value[0], f"{path}[0]", depth, named)
            return kept, self.value(value[1], f"{path}[1]", depth, under)
        items = [self.value(v, f"{path}[{n}]", depth, named) for n, v in enumerate(value)]
        if isinstance(value, (set, frozenset)):
            return items
        return tuple(items) if isinstance(value, tuple) else items

    def _raw(self, value: Raw, path: str, depth: int, named: Named) -> Raw:
        try:
            plain = msgspec.json.decode(value)
        except (ValueError, RecursionError):
            return Raw(msgspec.json.encode(f"[{len(bytes(value))} bytes]"))
        return Raw(msgspec.json.encode(self.value(plain, path, depth, named)))


def _pair(value: Mapping[Any, Any]) -> str | None:
    """The name in `{"name": "API_KEY", "value": "…"}`, as environments and headers are listed."""
    if "value" not in value:
        return None
    name = value.get("name", value.get("key"))
    return name if isinstance(name, str) else None


def _is_schema(path: str, item: Any) -> bool:
    """Whether a JSON Schema only speaks of a field that is called like a secret."""
    inside = path.rpartition(".")[2] == "properties"
    return inside and isinstance(item, Mapping) and not _SCHEMA.isdisjoint(item)


def describe(value: Any) -> str:
    """An exception or an unknown object as text, even if it refuses."""
    try:
        text = str(value)
    except Exception:
        return f"[{type(value).__name__}]"
    if isinstance(value, BaseException):
        return f"{type(value).__name__}: {text}" if text else type(value).__name__
    return text
