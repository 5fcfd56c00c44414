"""The attributes of a session on a server, such as `mode` and `state`, named as in a local session.
What is a property there is an async method here."""

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
from ..values.usage import Spent, Usage
from .location import ThreadLocation
from .server_check import read
from .streams import post

Surfaces: TypeAlias = list[wire.SurfaceShown]
Rule: TypeAlias = Literal["allow", "ask", "deny"] | None


class RemotePart:
    """Base class for the attributes of a remote session. Holds only the address of the thread."""

    def __init__(self, place: ThreadLocation) -> None:
        self._place = place


class ModePart(RemotePart):
    """The mode of the agent."""

    async def get(self) -> str:
        return (await self.about()).mode

    async def about(self) -> wire.ModeShown:
        """Return the current mode, and all modes of the agent."""
        return await self._place.call("GET", "/mode", wire.ModeShown)

    async def switch(self, mode: str, text: str | None = None) -> bool:
        """Switch to another mode from the next step on, and optionally send `text` as a message.
        Returns False if nothing changed."""
        body = wire.SwitchMode(mode=mode, text=text)
        return (await self._place.call("PUT", "/mode", wire.ModeShown, body=body)).changed


class ModelPart(RemotePart):
    """The model of this thread."""

    async def get(self) -> str | None:
        """Return the model of the next call. A run may set another model for its own calls."""
        return (await self.about()).model

    async def about(self) -> wire.ModelShown:
        """Return the model of the next call, and the model chosen for this thread."""
        return await self._place.call("GET", "/model", wire.ModelShown)

    async def set(self, ref: str, *, mode: str | None = None) -> bool:
        """Use this model in this thread from now on; with a `mode`, only in that mode. Returns
        False if nothing changed."""
        return await self._choose(wire.ChooseModel(model=ref, mode=mode))

    async def clear(self, *, mode: str | None = None) -> bool:
        """Remove the model chosen for this thread, so that the default of the mode, the agent or
        the server applies."""
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
        """Set entries, and return the whole state. Concurrent changes of other entries are kept."""
        return await self._change(wire.ChangeState(set={**(changes or {}), **more}))

    async def drop(self, *names: str) -> dict[str, Any]:
        return await self._change(wire.ChangeState(drop=[*names]))

    async def replace(self, entries: Mapping[str, Any]) -> dict[str, Any]:
        """Replace the whole state."""
        body = wire.ReplaceState(state=dict(entries))
        return (await self._place.call("PUT", "/state", wire.StateShown, body=body)).state

    async def _change(self, body: wire.ChangeState) -> dict[str, Any]:
        return (await self._place.call("PATCH", "/state", wire.StateShown, body=body)).state


class UsagePart(RemotePart):
    """Tokens and cost of model calls."""

    async def get(self) -> Usage:
        """Return the usage of this thread."""
        return (await self.about()).thread

    async def about(self) -> wire.UsageShown:
        """Return the usage of this thread, and of all threads of the session."""
        return await self._place.call("GET", "/usage", wire.UsageShown)

    async def table(self) -> list[Spent]:
        """Return the usage by thread, run and model for the whole session."""
        place = self._place
        path = f"{place.path}/usage-table"
        return (await place.transport.call("GET", path, wire.UsageTable)).items


class FollowUpsPart(RemotePart):
    """The queued messages, in the order in which they will be processed."""

    async def list(self) -> list[Queued]:
        return (await self._place.call("GET", "/follow-ups", wire.Followed)).items

    async def add(self, text: str, **options: Any) -> int:
        """Queue a message. If no run is active, a run starts immediately. Returns the event number,
        with which the message can be edited, moved and removed."""
        given: SendOptions = {**options, "busy": "queue"}  # type: ignore[typeddict-item]  # checked by `post`
        return (await post(self._place, text, given)).seq

    async def edit(self, seq: int, text: str) -> None:
        """Replace the text of a queued message."""
        body = wire.EditText(text=text)
        await self._place.call("PATCH", f"/follow-ups/{seq}", wire.Followed, body=body)

    async def reorder(self, seqs: Sequence[int]) -> None:
        """Move these messages to the front of the queue, in this order."""
        body = wire.Reorder(order=[*seqs])
        await self._place.call("PUT", "/follow-ups", wire.Followed, body=body)

    async def remove(self, *seqs: int) -> None:
        """Remove messages from the queue; they stay in the log."""
        for seq in seqs:
            await self._place.call("DELETE", f"/follow-ups/{seq}", wire.Followed)


class PermissionsPart(RemotePart):
    """The permission rules of the session: allow, ask or deny."""

    async def get(self) -> wire.PermissionsShown:
        return await self._place.call("GET", "/permissions", wire.PermissionsShown)

    async def set(
        self, *, tool: str | None = None, category: str | None = None, rule: Rule
    ) -> wire.PermissionsShown:
        """Set the rule for a tool or a category of tools; None removes the rule."""
        body = wire.SetRule(tool=tool, category=category, rule=rule)
        return await self._place.call("PUT", "/permissions", wire.PermissionsShown, body=body)

    async def grant(
        self, *, tool: str | None = None, category: str | None = None
    ) -> wire.PermissionsShown:
        """Allow a tool or a category of tools without approval, until another driver takes over the
        session."""
        body = wire.Grant(tool=tool, category=category)
        return await self._place.call("POST", "/grants", wire.PermissionsShown, body=body)

    async def revoke(
        self, *, tool: str | None = None, category: str | None = None
    ) -> wire.PermissionsShown:
        """Revoke the grant of a tool or a category, or without arguments, all grants."""
        query = {"tool": tool, "category": category}
        return await self._place.call("DELETE", "/grants", wire.PermissionsShown, query=query)


class DisplayPart(RemotePart):
    """The display of this thread: its content in the form that user interfaces show."""

    async def get(self, at: int | None = None) -> Display:
        """Return the current display, or the display right after event `at`: an immutable value."""
        where = self._place
        query = where.named if at is None else {**where.named, "at": str(at)}
        found = await where.transport.raw("GET", f"{where.path}/display", query=query)
        return read(found, Display, where.transport.url(""), from_json)

    async def changes(self) -> AsyncGenerator[Display, None]:
        """Yield the current display, then a new one after each change. The display is fetched once,
        then updated locally from events and deltas, over any number of connections."""
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
    """The surfaces, such as chat channels, that are bound to the session."""

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
        """Bind a surface to the session. With `move`, the surface is taken from the session that
        has it."""
        body = wire.AttachSurface(
            surface=surface, address=address, detail=dict(detail or {}), move=move
        )
        return (await self._place.call("POST", "/surfaces", wire.MovedSurface, body=body)).items

    async def detach(self, surface: str, address: str) -> Surfaces:
        query = {"surface": surface, "address": address}
        found = await self._place.call("DELETE", "/surfaces", wire.MovedSurface, query=query)
        return found.items
