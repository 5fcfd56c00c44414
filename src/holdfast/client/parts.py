"""The parts of a session on a server, named as in the library. What is a property there is asked
for with `await` here."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any, Literal, TypeAlias

from .. import wire
from ..log.events import Event
from ..log.events.defaults import compact
from ..values.delta import Delta
from ..values.display import Display, from_json, reduce
from ..values.options import SendOptions
from ..values.status import Queued
from ..values.usage import Usage
from .location import ThreadLocation
from .server_check import read
from .streams import post

Surfaces: TypeAlias = list[wire.SurfaceShown]
Rule: TypeAlias = Literal["allow", "ask", "deny"] | None


class RemotePart:
    """A part of a session; it keeps nothing of its own."""

    def __init__(self, place: ThreadLocation) -> None:
        self._place = place


class ModePart(RemotePart):
    """Which mode the agent works in."""

    async def get(self) -> str:
        return (await self.about()).mode

    async def about(self) -> wire.ModeShown:
        """The mode, and those that there are."""
        return await self._place.call("GET", "/mode", wire.ModeShown)

    async def switch(self, mode: str, text: str | None = None) -> bool:
        """Work in another mode from the next step on; `text` is received as a message then.
        False where it was the mode already."""
        body = wire.SwitchMode(mode=mode, text=text)
        return (await self._place.call("PUT", "/mode", wire.ModeShown, body=body)).changed


class ModelPart(RemotePart):
    """Which model speaks."""

    async def get(self) -> str | None:
        """The model of the next call, unless its run asks for another."""
        return (await self.about()).model

    async def about(self) -> wire.ModelShown:
        """That, and the thread's own choice."""
        return await self._place.call("GET", "/model", wire.ModelShown)

    async def set(self, ref: str, *, mode: str | None = None) -> bool:
        """Use this model in this thread from now on; with a `mode`, only there. False where it
        was so already."""
        return await self._choose(wire.ChooseModel(model=ref, mode=mode))

    async def clear(self, *, mode: str | None = None) -> bool:
        """Leave the choice to the mode, the agent and the server again."""
        return await self._choose(wire.ChooseModel(model=None, mode=mode))

    async def _choose(self, body: wire.ChooseModel) -> bool:
        return (await self._place.call("PUT", "/model", wire.ModelShown, body=body)).changed


class StatePart(RemotePart):
    """The user state: a small JSON object that belongs to the whole session."""

    async def get(self) -> dict[str, Any]:
        return (await self._place.call("GET", "/state", wire.StateShown)).state

    async def update(
        self, changes: Mapping[str, Any] | None = None, /, **more: Any
    ) -> dict[str, Any]:
        """Set entries, and return all; those of others, set at the same time, are kept."""
        return await self._change(wire.ChangeState(set={**(changes or {}), **more}))

    async def drop(self, *names: str) -> dict[str, Any]:
        return await self._change(wire.ChangeState(drop=[*names]))

    async def replace(self, entries: Mapping[str, Any]) -> dict[str, Any]:
        """Set all of it."""
        body = wire.ReplaceState(state=dict(entries))
        return (await self._place.call("PUT", "/state", wire.StateShown, body=body)).state

    async def _change(self, body: wire.ChangeState) -> dict[str, Any]:
        return (await self._place.call("PATCH", "/state", wire.StateShown, body=body)).state


class UsagePart(RemotePart):
    """What was used of models."""

    async def get(self) -> Usage:
        """What this thread used."""
        return (await self.about()).thread

    async def about(self) -> wire.UsageShown:
        """That, and what all threads of the session used."""
        return await self._place.call("GET", "/usage", wire.UsageShown)


class FollowUpsPart(RemotePart):
    """The messages that wait for their turn, in the order in which they will be taken up."""

    async def list(self) -> list[Queued]:
        return (await self._place.call("GET", "/follow-ups", wire.Followed)).items

    async def add(self, text: str, **options: Any) -> int:
        """Send a message for when all others are answered; at once where nothing is going on.
        The number by which it can be edited, moved and removed."""
        given: SendOptions = {**options, "busy": "queue"}  # type: ignore[typeddict-item]  # checked there
        return (await post(self._place, text, given)).seq

    async def edit(self, seq: int, text: str) -> None:
        """Let the model read other words."""
        body = wire.EditText(text=text)
        await self._place.call("PATCH", f"/follow-ups/{seq}", wire.Followed, body=body)

    async def reorder(self, seqs: Sequence[int]) -> None:
        """These first, in this order."""
        body = wire.Reorder(order=[*seqs])
        await self._place.call("PUT", "/follow-ups", wire.Followed, body=body)

    async def remove(self, *seqs: int) -> None:
        """Take messages out; they stay in the log."""
        for seq in seqs:
            await self._place.call("DELETE", f"/follow-ups/{seq}", wire.Followed)


class PermissionsPart(RemotePart):
    """What the agent may do without asking, and what it may not do at all."""

    async def get(self) -> wire.PermissionsShown:
        return await self._place.call("GET", "/permissions", wire.PermissionsShown)

    async def set(
        self, *, tool: str | None = None, category: str | None = None, rule: Rule
    ) -> wire.PermissionsShown:
        """Allow, ask about or deny a tool, or a category of tools; None takes the rule away."""
        body = wire.SetRule(tool=tool, category=category, rule=rule)
        return await self._place.call("PUT", "/permissions", wire.PermissionsShown, body=body)

    async def grant(
        self, *, tool: str | None = None, category: str | None = None
    ) -> wire.PermissionsShown:
        """Ask no more about a tool, or a category of tools, as long as this driver drives."""
        body = wire.Grant(tool=tool, category=category)
        return await self._place.call("POST", "/grants", wire.PermissionsShown, body=body)

    async def revoke(
        self, *, tool: str | None = None, category: str | None = None
    ) -> wire.PermissionsShown:
        """Ask again about one of them, or about all."""
        query = {"tool": tool, "category": category}
        return await self._place.call("DELETE", "/grants", wire.PermissionsShown, query=query)


class DisplayPart(RemotePart):
    """What a person is to see of this thread."""

    async def get(self) -> Display:
        """The display at this moment. A value: it stays as it is, whatever happens next."""
        where = self._place
        asked = None if where.thread == "main" else where.thread
        found = await where.transport.raw("GET", f"{where.path}/display", query={"thread": asked})
        return read(found, Display, where.transport.url(""), from_json)

    async def changes(self) -> AsyncGenerator[Display, None]:
        """The display now, and again after all that happens: fetched once, then made here of
        events and deltas, over however many connections."""
        display = await self.get()
        yield display
        feed = self._place.feed(display.head)
        async with contextlib.aclosing(feed.parts()) as parts:
            async for item in parts:
                if not isinstance(item, (Event, Delta)):
                    continue
                news = compact(item) if isinstance(item, Event) else item
                if (shown := reduce(display, news)) != display:
                    display = shown
                    yield display


class SurfacesPart(RemotePart):
    """Where the session is talked to from."""

    async def list(self) -> Surfaces:
        return (await self._place.call("GET", "/surfaces", wire.MovedSurface)).items

    async def attach(
        self,
        surface: str,
        address: str,
        *,
        detail: Mapping[str, Any] | None = None,
        move: bool = False,
    ) -> Surfaces:
        """Bind a surface to the session; `move` takes it from another."""
        body = wire.AttachSurface(
            surface=surface, address=address, detail=dict(detail or {}), move=move
        )
        return (await self._place.call("POST", "/surfaces", wire.MovedSurface, body=body)).items

    async def detach(self, surface: str, address: str) -> Surfaces:
        query = {"surface": surface, "address": address}
        found = await self._place.call("DELETE", "/surfaces", wire.MovedSurface, query=query)
        return found.items
