"""Redacts everything in a bundle.

`Scrub` redacts an event according to the roles of its fields, so that the result still decodes as
the same kind of event, and calls still match their results. `sanitizer` and `withholder` implement
the two modes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from ...log import events as ev
from ...log.codec import typed
from ...log.events import KINDS, Event, to_json
from ...redact.spans import trie
from .fields import Role, listed
from .manifest import HitCounter, Mode, Pseudonyms, Redacted, Redaction
from .review import Review
from .sanitizer import Sanitizer, ScrubConfig
from .split_secrets import SplitSecrets
from .withholder import Withholder

__all__ = ["Mode", "Redacted", "Redaction", "Scrub", "ScrubConfig"]

PREFIX = 6  # bytes by which secrets are indexed
PLACEHOLDERS = {"sanitized": "[redacted:CLASS:NUMBER]", "replay_only": "[withheld:NUMBER]"}


class Scrub:
    """Redacts the values of one export. The same calls in the same order yield the same bytes.

    `review` collects each replacement and each possible secret. Mode `local` changes nothing.
    Scrubbing is idempotent.
    """

    def __init__(
        self, mode: Mode, config: ScrubConfig | None = None, review: Review | None = None
    ) -> None:
        self.mode = mode
        config = config or ScrubConfig()
        self._hits, names = HitCounter(), Pseudonyms()
        if mode == "replay_only":  # a name is kept only if no rule finds anything in it
            config = msgspec.structs.replace(config, personal=("all",))
        elif mode == "local":
            config = ScrubConfig(detector=False)
        self._sanitizer = Sanitizer(config, self._hits, names, review)
        self._split = SplitSecrets(self._sanitizer.spans)
        self._taker: Sanitizer | Withholder = self._sanitizer
        if mode == "replay_only":
            self._taker = Withholder(self._sanitizer, self._hits, names)

    @property
    def found(self) -> dict[str, str]:
        """The secrets found so far that cannot be ordinary words, with their rules."""
        return dict(self._sanitizer.found)

    def learn(self, found: Mapping[str, str]) -> None:
        """Replace these secrets wherever they occur from now on, and count each as a match of its
        rule.
        """
        by_rule: dict[str, list[str]] = {}
        for secret, rule in found.items():
            by_rule.setdefault(rule, []).append(secret)
        for rule, secrets in by_rule.items():
            self._sanitizer.learn(*secrets, rule=rule)

    def remains(self, parts: Iterable[Iterable[bytes]]) -> bool:
        """Return whether a secret that was found elsewhere still occurs in one of these lines."""
        forms: dict[bytes, list[bytes]] = {}
        for secret in self._sanitizer.found:
            for form in _written(secret):
                forms.setdefault(form[:PREFIX], []).append(form)
        if not forms:
            return False
        prefixes = re.compile(trie(key.decode("latin-1") for key in forms).encode("latin-1"))
        return any(
            line.startswith(form, found.start())
            for lines in parts
            for line in lines
            for found in prefixes.finditer(line)
            for form in forms[found[0]]
        )

    def event(self, event: Event, path: str) -> Event:
        """Return the event redacted; its payload can still be decoded."""
        if self.mode == "local":
            return event
        data = event.json()
        thread = path.partition(".events")[0]
        for piece, rule in self._split.pieces(data, f"{thread} {event.kind}"):
            self._sanitizer.found.setdefault(piece, rule)
        first, dot, rest = event.kind.partition(".")
        if event.kind not in KINDS:
            rest = self._taker.field("name", rest, f"{path}.kind") if rest else ""
        return msgspec.structs.replace(
            event,
            data=to_json(self._data(event, data, f"{path}.data")),
            id=self._taker.id(event.id, f"{path}.id"),
            kind=first + dot + rest,
            run=self._taker.field("id", event.run, f"{path}.run"),
            actor=self._taker.field("person", event.actor, f"{path}.actor"),
            cause=self._taker.field("id", event.cause, f"{path}.cause"),
        )

    def _data(self, event: Event, data: Any, path: str) -> Any:
        kind = KINDS.get(event.kind)
        if not isinstance(data, dict):
            return self._taker.value(data, path)
        if set(data) == {"erased"}:
            return {"erased": self._taker.value(data["erased"], f"{path}.erased")}
        if kind is None:
            return self._taker.value(data, path)
        if typed(event) is not None:
            return self._payload(kind, data, path)
        known = {name: item for name, item in data.items() if name in listed(kind)}
        rest = {name: item for name, item in data.items() if name not in known}
        kept = {name: self._taker.value(item, f"{path}.{name}") for name, item in known.items()}
        return {**kept, **self._taker.value(rest, path)}

    def _payload(self, kind: type[ev.Payload], data: Any, path: str) -> Any:
        """Redact a payload field by field; unknown fields are content."""
        known = listed(kind)
        found = {
            name: self._known(known[name], item, f"{path}.{name}")
            for name, item in data.items()
            if name in known
        }
        rest = {name: item for name, item in data.items() if name not in known}
        return {**found, **self._taker.value(rest, path)} if rest else found

    def _known(self, what: Role, item: Any, path: str) -> Any:
        if isinstance(what, str):
            return self._taker.field(what, item, path)
        if isinstance(item, list):
            return [self._payload(what, each, f"{path}[{n}]") for n, each in enumerate(item)]
        return item if item is None else self._payload(what, item, path)

    def value(self, value: Any, path: str) -> Any:
        """Redact a JSON value outside the events."""
        return value if self.mode == "local" else self._taker.value(value, path)

    def text(self, text: str, path: str) -> str:
        """Redact a string outside the events."""
        return text if self.mode == "local" else self._taker.text(text, path)

    def id(self, id: str, path: str) -> str:
        """Redact the id of a session, a thread or a tenant, which may contain a person's name."""
        return id if self.mode == "local" else self._taker.id(id, path)

    def blob(self, data: bytes, path: str) -> bytes | None:
        """Redact the bytes of a blob; None if it must be omitted."""
        if self.mode == "local":
            return data
        if self.mode == "replay_only":
            self._hits.add("content", "withheld", path)
            return None
        return self._sanitizer.blob(data, path)

    def manifest(self) -> Redaction:
        """Return the manifest of the replacements so far, without values."""
        if self.mode == "local":
            return Redaction()
        return self._hits.redaction(
            self.mode,
            PLACEHOLDERS[self.mode],
            self._sanitizer.detectors,
            self._sanitizer.kinds if self.mode == "sanitized" else (),
        )


def _written(secret: str) -> Iterator[bytes]:
    """Return the forms in which a bundle can contain a secret: JSON, JSON within JSON, UTF-16."""
    once = msgspec.json.encode(secret)[1:-1]
    yield from (once, msgspec.json.encode(once.decode())[1:-1], secret.encode("utf-16-le"))
