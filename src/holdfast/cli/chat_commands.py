"""Handles the lines that a user types in a chat: messages, answers and commands."""

from __future__ import annotations

from typing import Any

import msgspec

from ..errors import HoldfastError, InvalidValue
from ..harness import Session
from ..log.events import ids, new_id
from ..values.pending import Ask
from .options import BY
from .screen import Screen

COMMANDS = ("abort", "queue", "model", "mode", "quit")
HELP = "commands: /abort /queue /model REF /mode NAME /quit; // sends a slash"


class ChatCommands:
    """Handles each line that the user types: sends a message, answers a question, or runs a
    command. `model` is the model to use for messages.
    """

    def __init__(self, session: Session, screen: Screen, model: str | None) -> None:
        self.session, self.screen, self.model = session, screen, model
        self.asked: Ask | None = None  # the question that the next line answers
        self._editing = False

    @property
    def question(self) -> str:
        """Return the prompt to show before the next line of input."""
        if (ask := self.asked) is None:
            return "> "
        if self._editing:
            return "new arguments (JSON): "
        if ask.what == "question":
            return f"{ask.title} "
        ways = "y, n REASON, e to edit" if ask.what != "external" else "y to run it again, n REASON"
        return f"{ask.title}? {ways}: "

    async def take(self, text: str) -> bool:
        """Handle one line of input. Return True if the line ends the chat."""
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
            self.screen.remark("invalid input: type y, n REASON, or e to edit the arguments")

    async def _approve(self, ask: Ask, text: str) -> None:
        arguments = _json(text)
        if not isinstance(arguments, dict):
            problem = f"must be a JSON object, got {text!r}"
            raise InvalidValue(field="arguments", problem=problem, remedy="type a JSON object")
        await self.session.approve(ask.id, arguments=arguments, actor=BY.who)

    async def abort(self) -> None:
        if self.session.status.run is None:
            self.screen.remark("there is no run to abort")
        else:
            await self.session.abort("requested in the chat", actor=BY.who)

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
            self.screen.line("the queue is empty")


def _json(text: str, *, strict: bool = True) -> Any:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        if not strict:
            return text
        raise InvalidValue(
            field="arguments", problem=f"must be JSON ({error})", remedy="type a JSON object"
        ) from error
