"""What a line means in a chat: a message, an answer to what is asked, or a command."""

from __future__ import annotations

from typing import Any

import msgspec

from ..errors import HoldfastError, InvalidValue
from ..harness.session.session import Session
from ..log.events import ids, new_id
from ..values.pending import Ask
from .screen import Screen
from .session import BY

HELP = "/abort /queue /model REF /mode NAME /quit; // begins a message with a slash"


class Orders:
    """Does what a person at one session says. `model` is asked for with each message."""

    def __init__(self, session: Session, screen: Screen, model: str | None) -> None:
        self.session, self.screen, self.model = session, screen, model
        self.asked: Ask | None = None  # what the next line is about
        self._editing = False

    @property
    def question(self) -> str:
        """What the person is asked for, in one line."""
        if (ask := self.asked) is None:
            return "> "
        if self._editing:
            return "new arguments, as JSON: "
        if ask.what == "question":
            return f"{ask.title} "
        ways = "y, n REASON, e to edit" if ask.what != "external" else "y runs it again, n REASON"
        return f"{ask.title}? {ways}: "

    async def take(self, text: str) -> bool:
        """Do what a line says; True if it says to leave."""
        try:
            if text.startswith("/") and not text.startswith("//"):
                return await self._command(*text[1:].partition(" ")[::2])
            editing, self._editing = self._editing, False
            if (ask := self.asked) is None:
                await self._post(text.removeprefix("/") if text.startswith("//") else text)
            elif editing:
                await self._approve(ask, text)
            else:
                await self._decide(ask, text)
        except HoldfastError as error:
            self.screen.problem(error)
        return False

    async def _post(self, text: str) -> None:
        key = new_id()
        self.screen.mine.add(ids.input_id(key))
        await self.session.post(text, key=key, actor=BY.who, model=self.model)

    async def _decide(self, ask: Ask, text: str) -> None:
        word, _, rest = text.partition(" ")
        rest = rest.strip()
        self.screen.mine.add(ids.settle_id(ask.id))
        if ask.what == "question":
            await self.session.answer(_json(text, strict=False), ask.id, actor=BY.who)
        elif word in ("y", "yes"):
            await self.session.approve(ask.id, actor=BY.who, reason=rest or None)
        elif word in ("n", "no"):
            await self.session.deny(ask.id, rest or None, actor=BY.who)
        elif word in ("e", "edit") and rest:
            await self._approve(ask, rest)
        elif word in ("e", "edit"):
            self._editing = True
            self.screen.line(f"arguments: {msgspec.json.encode(ask.arguments).decode()}", "dim")
        else:
            self.screen.remark("not understood")

    async def _approve(self, ask: Ask, text: str) -> None:
        arguments = _json(text)
        if not isinstance(arguments, dict):
            remedy = "write them as a JSON object"
            raise InvalidValue(field="arguments", problem=f"are {text!r}", remedy=remedy)
        await self.session.approve(ask.id, arguments=arguments, actor=BY.who)

    async def abort(self) -> None:
        if self.session.status.run is None:
            self.screen.remark("nothing is going on")
        else:
            await self.session.abort("asked for", actor=BY.who)

    async def _command(self, word: str, rest: str) -> bool:
        rest = rest.strip()
        match word:
            case "quit" | "exit":
                return True
            case "abort":
                await self.abort()
            case "queue":
                await self._queue()
            case "model" if rest:
                await self.session.model.set(rest)
                self.model = None
            case "model":
                self.screen.line(f"model: {self.model or self.session.model.ref}")
            case "mode" if rest:
                await self.session.mode.switch(rest)
            case "mode":
                self.screen.line(f"mode: {self.session.mode.name}")
            case _:
                self.screen.remark(HELP)
        return False

    async def _queue(self) -> None:
        waiting = await self.session.queue.list()
        for item in waiting:
            self.screen.line(f"{item.seq:>6}  {item.how}  {item.text}")
        if not waiting:
            self.screen.line("nothing waits")


def _json(text: str, *, strict: bool = True) -> Any:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        if not strict:
            return text
        raise InvalidValue(
            field="arguments", problem=f"are no JSON ({error})", remedy="write a JSON object"
        ) from error
