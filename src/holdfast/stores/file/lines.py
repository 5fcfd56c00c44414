"""The lines of a log file: a header, then one line per event, which also contains the change of the
row.

The format is documented in `docs/formats/log.md`. You can follow a file with `tail -f` and read it
with any JSON tool.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple
from zlib import crc32

import msgspec
from msgspec import Raw, Struct

from ...log.catalog import RowChange
from ...log.events import Event, Key
from ..rules import LeaseState

FORMAT = 1
MOST_MISSING = 10_000  # a larger gap than this means that the number itself is damaged

LINE = b'{"seq":'  # the beginning of each line


class Header(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The first line of a log file. In a fork, `base` is the log whose file contains the shared
    events, and `shared` is the number of the last shared event. A deleted log that forks still need
    has no key."""

    holdfast: int
    log: str
    tenant: str | None = None
    session: str | None = None
    thread: str | None = None
    base: str | None = None
    shared: int = 0

    @property
    def key(self) -> Key | None:
        if self.tenant is None or self.session is None or self.thread is None:
            return None
        return Key(self.tenant, self.session, self.thread)


class LogLine(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The line of an event. With `apart`, the data is in a separate file, and this line has its
    size and hash. `link` binds the event to the events before it. The link is stored with the
    `salt` of its mark, or with the `mark` itself if the data is erased. `first` is the number of
    the first event of the transaction in this log, `last` the number of the last event of the
    append; each is omitted if it is the event's own number. The last line of an append that
    acquired or released the lease contains the new state of the lease as `lease`. The line ends
    with the CRC-32 of all preceding bytes."""

    seq: int
    at: int
    kind: str
    id: str
    v: int = 1
    run: str | None = None
    actor: str | None = None
    cause: str | None = None
    sha256: str
    salt: str | None = None
    mark: str | None = None
    link: str | None = None
    apart: bool = False
    first: int = 0
    last: int = 0
    lease: LeaseState | None = None
    row: RowChange = ()
    data: Raw

    @property
    def kept(self) -> bytes | None:
        """The event's link with its type tag and its salt or mark, as stored in the index."""
        if self.link is None:
            return None
        tag = b"w" if self.salt is not None else b"e" if self.mark is not None else b"x"
        try:
            return tag + bytes.fromhex(self.salt or self.mark or "") + bytes.fromhex(self.link)
        except ValueError:
            return tag  # an invalid link, which `verify` reports

    def event(self) -> Event:
        return Event(
            kind=self.kind,
            data=self.data,
            id=self.id,
            v=self.v,
            run=self.run,
            actor=self.actor,
            cause=self.cause,
            seq=self.seq,
            at=self.at,
        )


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(LogLine).decode
_header = msgspec.json.Decoder(Header).decode


def header_line(header: Header) -> bytes:
    return _with_crc(_encode(header))


def _with_crc(text: bytes) -> bytes:
    """Add the CRC-32 of a line's JSON as its last field `crc`."""
    return b'%b,"crc":%d}\n' % (text[:-1], crc32(text[:-1]))


def _whole(text: bytes) -> bool:
    """Return whether a line is complete and matches its CRC-32."""
    end = text.rfind(b',"crc":')
    try:
        return text[-2:] == b"}\n" and crc32(text[:end]) == int(text[end + 7 : -2])
    except ValueError:
        return False


def event_line(
    event: Event,
    hash: bytes,
    link: bytes | None,
    change: RowChange,
    *,
    stub: Raw | None = None,
    first: int = 0,
    last: int = 0,
    lease: LeaseState | None = None,
) -> bytes:
    """Encode the line of an event. `stub` replaces data that is stored in a separate file."""
    line = LogLine(
        seq=event.seq,
        at=event.at,
        kind=event.kind,
        id=event.id,
        v=event.v,
        run=event.run,
        actor=event.actor,
        cause=event.cause,
        sha256=hash.hex(),
        salt=link[1:-32].hex() if link and link[:1] == b"w" else None,
        mark=link[1:-32].hex() if link and link[:1] == b"e" else None,
        link=link[-32:].hex() if link else None,
        apart=stub is not None,
        first=0 if first == event.seq else first,
        last=0 if last == event.seq else last,
        lease=lease,
        row=change,
        data=event.data if stub is None else stub,
    )
    return _with_crc(_encode(line))


def parse_header(text: bytes) -> Header | None:
    """Parse the header in a file's first line. Returns None if the line is damaged."""
    try:
        header = _header(text) if _whole(text) else None
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    return header if header is not None and header.holdfast == FORMAT else None


def parse_line(text: bytes) -> LogLine | None:
    """Parse the line of an event. Returns None if the line is damaged."""
    try:
        return _decode(text) if _whole(text) else None
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


class Placed(NamedTuple):
    """A line and its position in the file. `line` is None if the line cannot be read."""

    seq: int
    line: LogLine | None
    offset: int
    length: int


class Scanned(NamedTuple):
    """The lines in a part of a file, with their event numbers. `end` is the offset after the last
    complete line, and `torn` is the number of bytes after it."""

    lines: list[Placed]
    end: int
    torn: int


def scan(text: bytes, *, offset: int, seq: int) -> Scanned:
    """Parse the lines of a file from `offset` on. `seq` is the number of the event before them.

    A damaged line does not prevent reading the lines around it: the number of the next intact line
    shows how many lines are missing. If a line's number does not fit the next intact line, the
    number itself counts as damaged. Bytes after the last line end are an interrupted write.
    """
    placed: list[Placed] = []
    bad: list[tuple[int, int]] = []
    end = offset
    found = [(start, raw, parse_line(raw)) for start, raw in _split(text, offset)]
    coming = [line.seq for _, _, line in found if line is not None][::-1]
    for start, raw, line in found:
        end = start + len(raw)
        if line is not None:
            coming.pop()
        if line is None or not _follows(line.seq, seq, coming[-1] if coming else None):
            bad.append((start, len(raw)))
            continue
        # One damaged line may replace several numbers, or only part of a line.
        for number in range(seq + 1, line.seq):
            placed.append(Placed(number, None, *(bad.pop(0) if bad else (start, 0))))
        bad.clear()
        placed.append(Placed(line.seq, line, start, len(raw)))
        seq = line.seq
    placed += [Placed(seq + n, None, *where) for n, where in enumerate(bad, 1)]
    return Scanned(placed, end, offset + len(text) - end)


def unfinished(scanned: Scanned, offset: int, seq: int) -> Scanned:
    """Return the scan without its last transaction, if that is incomplete. A power loss during an
    append can leave any of its lines in the file, with gaps."""
    sound = {placed.seq: placed.line for placed in scanned.lines if placed.line is not None}
    keep = seq
    if sound:
        line = sound[max(sound)]
        start = line.first or line.seq
        whole = all(number in sound for number in range(start, line.seq + 1))
        keep = line.seq if whole and (line.last or line.seq) == line.seq else start - 1
    lines = [placed for placed in scanned.lines if placed.seq <= keep]
    end = lines[-1].offset + lines[-1].length if lines else offset
    return Scanned(lines, end, scanned.end + scanned.torn - end)


def _follows(number: int, seq: int, coming: int | None) -> bool:
    """Return whether a line with this number can come after `seq` and before `coming`."""
    if number == seq + 1 or coming is None or coming <= seq:
        return seq < number <= seq + 1 + MOST_MISSING
    return seq < number < coming and number <= seq + 1 + MOST_MISSING


def _split(text: bytes, offset: int) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at < len(text):
        stop = text.find(b"\n", at) + 1
        if stop == 0:
            return  # no line end: the write was interrupted
        raw = text[at:stop]
        if (second := _second(raw)) > 0:
            yield offset + at, raw[:second]
        yield offset + at + second, raw[second:]
        at = stop


def _second(raw: bytes) -> int:
    """Return the offset of an intact line that follows a damaged line without a line end between
    them; 0 if there is none."""
    at = raw.find(LINE, 1)
    if at < 0 or parse_line(raw) is not None:
        return 0
    while at > 0 and parse_line(raw[at:]) is None:
        at = raw.find(LINE, at + 1)
    return max(at, 0)
