"""Decodes text: terminal colours, invisible characters, escapes, URL and HTML encoding, wrapped
lines, base64 and hexadecimal. Decoded text maps each character to its position in the original, so
that a secret can be replaced there.
"""

from __future__ import annotations

import base64
import binascii
import bisect
import html
import re
import zlib
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeAlias
from urllib.parse import unquote

from .spans import Bounds

# ruff: noqa: E501 - a pattern is easier to read in one piece

AROUND = 512  # characters that are searched around a decoded part
DEPTH = 3  # levels of nested encodings


class DecodedText(NamedTuple):
    """Text with some encodings removed, and the original positions of its characters."""

    text: str
    starts: list[int]  # where each piece begins in `text`
    origin: list[tuple[int, int, bool]]  # its span in the original, and whether it is unchanged

    def span(self, start: int, end: int) -> Bounds:
        """Return the original position of a span of `text`."""
        return self._at(start, last=False), self._at(end - 1, last=True)

    def regions(self) -> Iterator[Bounds]:
        """Yield the decoded parts of `text`, each with the lines around it."""
        begin = end = before = 0
        for n, (start, stop, plain) in enumerate(self.origin):
            if not plain or start != before:
                here = self.starts[n]
                low = max(0, self.text.rfind("\n", max(0, here - AROUND), max(0, here - 1)))
                if end and low > end:
                    yield begin, end
                    begin = low
                elif not end:
                    begin = low
                there = self.starts[n + 1] if not plain and n + 1 < len(self.starts) else here
                end = min(len(self.text), there + AROUND)
            before = stop
        if end:
            yield begin, end

    def _at(self, place: int, *, last: bool) -> int:
        n = bisect.bisect_right(self.starts, place) - 1
        begin, end, plain = self.origin[n]
        if plain:
            return begin + place - self.starts[n] + last
        return end if last else begin


# Terminal control sequences, by how they begin: the escape byte, notations of it, or nothing.
_ANSI = {
    "\x1b": re.compile(
        r"\x1b(?:\[[0-9;:?]{0,32}[A-Za-z]|\][^\x07\x1b]{0,512}(?:\x07|\x1b\\)?|[()][A-Z0-9]|[=>78])"
    ),
    "\x9b": re.compile(r"\x9b[0-9;]{0,32}[A-Za-z]"),
    "\\": re.compile(r"\\(?:0?33|e)\[[0-9;]{0,32}[A-Za-z]"),
    "^[": re.compile(r"\^\[\[[0-9;]{0,32}[A-Za-z]"),
    "␛": re.compile(r"␛\[[0-9;]{0,32}[A-Za-z]"),
    "[": re.compile(r"\[\d{1,3}(?:;\d{1,3}){0,4}m"),
}
_HIDDEN = re.compile(r"[\u200b-\u200f\u2060-\u2064\u00ad\ufeff\u202a-\u202e\u2066-\u2069\u180e]")
_WIDE = re.compile(r"[\uff01-\uff5e]")
_URL = re.compile(r"(?:%[0-9A-Fa-f]{2})+")
_HTML = re.compile(r"&(?:#\d{1,6}|#[xX][0-9A-Fa-f]{1,5}|[a-zA-Z]{2,8});")
_ESCAPE = re.compile(r"\\(?:u[0-9A-Fa-f]{4}|x[0-9A-Fa-f]{2}|[\"'/\\nrt])")
_QUOTED_PRINTABLE = re.compile(r"=(?:[0-9A-F]{2}|\r?\n)")
_CONTINUED = re.compile(r"\\\r?\n[ \t]{0,32}")  # a command that continues on the next line
_WRAPPED = re.compile(
    r"\n(?<=[\w+/=.-]{16}\n)(?:[>|] ?|[ \t]{1,16})?"
    r"(?![A-Z][A-Z0-9_]*=)(?=[a-zA-Z_+/.-]{0,64}\d)(?=[\w+/.-]{4,512}={0,2}(?:[@\"'&;,)]|[ \t]{0,4}(?:\r?\n|\Z)))"
)
_WRAPPED_CRLF = re.compile(
    _WRAPPED.pattern.replace(r"\n(?<=", r"\r\n(?<=", 1).replace(r"\n)", r"\r\n)", 1)
)
_BOXED = re.compile(
    r"(?<=[\w+/=.-])[ ]{0,64}[│┃][ \t]{0,4}\r?\n[ \t]{0,16}[│┃][ ](?=[\w+/=.-]{8,512}[ ]{0,64}[│┃])"
)
# Lines of a hexadecimal dump, as xxd and hexdump write them.
_DUMPED = re.compile(
    r"0000(?<![^\n]....)[0-9a-f]{2,4}:?[ ]{1,2}((?:[0-9a-f]{2}[ ]{0,2}){2,32})(?:[ ]{1,48}\|[^\n]{0,32}\||[ ]{1,48}[^\n]{0,32})?(?:\n|\Z)"
)
_LISTED = re.compile(r"[\"'],(?<=[\w/.:=-]..)[ ]?[\"'](?=[\w/.:-])")  # words of a command
_RUNS = re.compile(
    r"(?:CMD|Cmd|ENTRYPOINT|[Ee]ntrypoint|[Cc]ommand|[Aa]rgs|run|Popen|exec)\W{0,8}\Z"
)
_LETTERS = {"n": "\n", "r": "\r", "t": "\t"}


def _escape(found: re.Match[str]) -> str:
    kind = found[0][1]
    return chr(int(found[0][2:], 16)) if kind in "ux" else _LETTERS.get(kind, kind)


def _percent(found: re.Match[str]) -> str:
    return unquote(found[0], errors="replace")


def _listed(found: re.Match[str]) -> str:
    """Return a space as the replacement for the quotes and the comma between two words of a command
    that is written as a list.
    """
    text, start = found.string, found.start()
    opened = text.rfind("[", max(0, start - 256), start)
    return " " if opened >= 0 and _RUNS.search(text, max(0, opened - 24), opened) else found[0]


def _dumped(found: re.Match[str]) -> str:
    data = bytes.fromhex("".join(found[1].split()))
    return data.decode("latin-1") if data.isascii() else found[0]


def _printable(found: re.Match[str]) -> str:
    return "" if found[0][1:].isspace() else chr(int(found[0][1:], 16))


Layer: TypeAlias = tuple[str, re.Pattern[str], Callable[[re.Match[str]], str]]
_LAYERS: tuple[Layer, ...] = (
    *((mark, pattern, lambda found: "") for mark, pattern in _ANSI.items()),
    ("\x08", re.compile(r"[^\n]\x08"), lambda found: ""),
    ("", _HIDDEN, lambda found: ""),
    ("", _WIDE, lambda found: chr(ord(found[0]) - 0xFEE0)),
    ("&", _HTML, lambda found: html.unescape(found[0])),
    ("%", _URL, _percent),
    ("\\", _ESCAPE, _escape),
    ("[", _LISTED, _listed),
    ("0000", _DUMPED, _dumped),
    ("│", _BOXED, lambda found: ""),
    ("┃", _BOXED, lambda found: ""),
    ("\\", _CONTINUED, lambda found: ""),
    ("\n", _WRAPPED, lambda found: ""),
    ("\r\n", _WRAPPED_CRLF, lambda found: ""),
)


def decoded(text: str) -> Iterator[DecodedText]:
    """Decode the text repeatedly, since encodings can be nested, and yield the result of each pass."""
    view = DecodedText(text, [0], [(0, len(text), True)])
    for depth in range(DEPTH):
        below = view
        for mark, pattern, decode in _LAYERS:
            if (mark and mark not in below.text) or (not mark and below.text.isascii()):
                continue
            below = _without(below, pattern, decode)
        if depth == 0 and "=3D" in text:
            below = _without(below, _QUOTED_PRINTABLE, _printable)
        if below is view:
            return
        yield below
        view = below


def _without(
    view: DecodedText, pattern: re.Pattern[str], decode: Callable[[re.Match[str]], str]
) -> DecodedText:
    """Return the text without one encoding. If the text does not use the encoding, the same object
    is returned."""
    out: list[str] = []
    starts: list[int] = []
    origin: list[tuple[int, int, bool]] = []
    done = size = 0

    def keep(start: int, end: int) -> None:
        nonlocal size
        for length, piece in _pieces(view, start, end):
            starts.append(size)
            origin.append(piece)
            size += length
        out.append(view.text[start:end])

    for found in pattern.finditer(view.text):
        plain = decode(found)
        if plain == found[0]:
            continue
        keep(done, found.start())
        done = found.end()
        if plain:
            starts.append(size)
            origin.append((*view.span(*found.span()), False))
            out.append(plain)
            size += len(plain)
    if not done:
        return view
    keep(done, len(view.text))
    return DecodedText("".join(out), starts or [0], origin or [(0, 0, True)])


def _pieces(view: DecodedText, start: int, end: int) -> Iterator[tuple[int, tuple[int, int, bool]]]:
    """Yield the pieces between two positions of the decoded text: the length of each, and its
    position in the original.
    """
    n = bisect.bisect_right(view.starts, start) - 1
    while start < end:
        stop = min(end, view.starts[n + 1] if n + 1 < len(view.starts) else len(view.text))
        begin, finish, plain = view.origin[n]
        if plain:
            at = begin + start - view.starts[n]
            yield stop - start, (at, at + stop - start, True)
        elif stop > start:
            yield stop - start, (begin, finish, False)
        start, n = stop, n + 1


_BASE64 = re.compile(
    r"[A-Za-z0-9+/_-](?<![\w+/%-].)[A-Za-z0-9+/_-]{15,}+={0,2}(?:(?<=[A-Za-z0-9+/_-]{56})\r?\n[ \t>]{0,8}[A-Za-z0-9+/_-]{4,}+={0,2}(?![^\s\"']))*+"
)
_HEX = re.compile(r"(?:0x)?(?:[0-9a-fA-F]{2}){12,}+")
_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1f\x7f-\x9f\ufffd]")
INNER = 1 << 16  # characters of a run that are decoded


def encoded(text: str) -> Iterator[tuple[int, int, str]]:
    """Yield runs of base64 and hexadecimal that encode text: start, end, and the decoded text."""
    for found in _BASE64.finditer(text):
        lines = found[0].splitlines()
        inner = None
        if len({len(line) for line in lines[:-1]}) <= 1:  # one run, or a wrapped block
            inner = _inner("".join(line.strip(" \t>") for line in lines))
        if inner is not None:
            yield found.start(), found.end(), inner
        elif len(lines) > 1:
            yield from _lines(found)


def _lines(found: re.Match[str]) -> Iterator[tuple[int, int, str]]:
    """Yield each line of a match that is encoded text on its own: its start, end, and decoded text."""
    at = found.start()
    for line in found[0].splitlines(keepends=True):
        bare = line.strip(" \t>\r\n")
        if len(bare) >= 16 and (inner := _inner(bare)) is not None:
            begin = at + line.index(bare)
            yield begin, begin + len(bare), inner
        at += len(line)


def _inner(run: str) -> str | None:
    """Decode a run; None if it does not encode text. Base64 of text has letters of both cases."""
    one_case = run.islower() or run.isupper() or run.isdigit()
    if not one_case and (text := _base64(run)) is not None:
        return text
    return _text(bytes.fromhex(run.removeprefix("0x")[:INNER])) if _HEX.fullmatch(run) else None


def _base64(run: str) -> str | None:
    bare = run.rstrip("=")[:INNER].replace("-", "+").replace("_", "/")
    if len(bare) % 4 == 1:
        return None
    try:
        data = base64.b64decode(bare + "=" * (-len(bare) % 4))
    except (binascii.Error, ValueError):
        return None
    return _text(data)


def _unzipped(data: bytes) -> bytes:
    try:
        return zlib.decompressobj(31).decompress(data, INNER)
    except zlib.error:
        return b""


def _text(data: bytes) -> str | None:
    """Decode the bytes as UTF-8 or UTF-16 text, if they are text."""
    if data[:2] == b"\x1f\x8b":
        data = _unzipped(data)
    if len(data) < 8:
        return None
    wide = data[:64].count(0) >= min(len(data), 64) // 3
    code = ("utf-16-be" if data[:1] == b"\0" else "utf-16-le") if wide else "utf-8"
    try:
        plain = data[: len(data) // 2 * 2 if wide else None].decode(code)
    except UnicodeDecodeError:
        return None
    return None if _CONTROL.search(plain) else plain
