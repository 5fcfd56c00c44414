"""Encryption of drafts. Each piece of a draft is one line of text.

The inner store joins pieces by their offset in characters. An encrypted piece has a different
length, so each piece is appended after the stored text and contains its own offset. A piece that is
too long for one line has several lines, which are valid only together.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from ...errors import KeyMissing
from ...log.events import Key
from ..keyed_locks import KeyedLocks
from ..port import Draft, Lease, Store
from ..rules import join_draft
from .key_rings import Ring, UnknownKey, Unsealed

MOST = 760 << 10  # bytes of a piece that fit into one line
PIECE = 96 << 10  # characters per line of a longer piece
MESSAGES = 4_096  # messages whose stored length is cached


class VaultDrafts:
    """Encrypts drafts before they are stored. Caches the length of each draft in the inner store,
    because the next piece is appended there."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lengths: OrderedDict[tuple[Key, str, int], int] = OrderedDict()
        self._turns = KeyedLocks[tuple[Key, str]]()

    async def put(
        self, ring: Ring, key: Key, message: str, offset: int, text: str, fence: Lease
    ) -> None:
        """Encrypt a piece of a draft, and store it after the existing pieces."""
        place = _place(key, message, fence.token)
        parts = [text]
        if len(text.encode()) > MOST:
            parts = [text[at : at + PIECE] for at in range(0, len(text), PIECE)]
        known = (key, message, fence.token)
        async with self._turns.of((key, message)):
            for n, part in enumerate(parts, 1):
                said = (offset, n, len(parts))
                box = ring.encrypt(key.session, (*place, *said), part.encode())
                line = f"{'.'.join(map(str, said))}.{box}\n"
                at = await self._length(*known)
                # Dropped until the write succeeded: after a failure it is looked up again.
                self._lengths.pop(known, None)
                await self._store.put_draft(key, message, at, line, fence=fence)
                self._lengths[known] = at + len(line)
                offset += len(part)
        if len(self._lengths) > MESSAGES:
            self._lengths.popitem(last=False)

    async def _length(self, key: Key, message: str, token: int) -> int:
        known = self._lengths.get((key, message, token))
        if known is not None:
            return known
        for draft in await self._store.drafts(key):
            if (draft.message, draft.token) == (message, token):
                return len(draft.text)
        return 0


def opened_draft(key: Key, draft: Draft, ring: Ring) -> Draft | None:
    """Decrypt the text of a draft, up to the first piece that cannot be decrypted for its position.
    Returns None if no piece is complete."""
    place = _place(key, draft.message, draft.token)
    pieces: dict[int, str] = {}
    some: dict[int, str] = {}  # lines of a piece that is not complete yet
    for line in draft.text.splitlines():
        try:
            *said, box = line.split(".")
            offset, n, count = map(int, said)
            text = ring.decrypt(key.session, (*place, offset, n, count), box).decode()
        except UnknownKey:
            raise
        except (Unsealed, KeyMissing, ValueError):
            break
        some = {offset: text} if n == 1 else some | {offset: text}
        if n == count:
            pieces |= some
    return Draft(draft.message, join_draft(pieces), draft.token) if pieces else None


def _place(key: Key, message: str, token: int) -> tuple[Any, ...]:
    return ("draft", key.thread, message, token)
