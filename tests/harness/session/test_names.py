"""Every name in `docs/session.md` is there, and no part of a session is large."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

from holdfast import Harness
from holdfast.harness.session import display as showing
from holdfast.harness.session import state_views
from holdfast.models import ScriptedModel
from holdfast.values import display

from .stage import workshop

PAGE = (Path(__file__).parents[3] / "docs" / "session.md").read_text()


async def test_the_names_in_the_documents_are_there() -> None:
    async with Harness(workshop(), default_model=ScriptedModel(["Hi."])) as harness:
        session = await harness.get_or_create("s")
        paths = set(re.findall(r"session\.([a-z_]+(?:\.[a-z_]+)*)", PAGE))
        assert len(paths) > 25
        for path in paths:
            found = session
            for name in path.split("."):
                assert name in dir(found), path
                found = getattr(found, name)
        section = PAGE.split("## The parts")[1].split("\n## ")[0]
        rows = re.findall(r"^\| `([a-z_]+)` \| (.*) \|$", section, re.MULTILINE)
        assert len(rows) == 10
        for part, names in rows:
            for name in re.findall(r"`([a-z_]+)", names):
                assert name == part or name in dir(getattr(session, part)), (part, name)
        shown = session.display.get()
        fields = PAGE.split("| field |")[1].split("\n\n")[0]
        for row in re.findall(r"^\| (`.*?`) \|", fields, re.MULTILINE):
            assert all(name in dir(shown) for name in re.findall(r"`([a-z_]+)`", row)), row


def test_no_part_is_large() -> None:
    for module in (display, showing, state_views):
        for _, kind in inspect.getmembers(module, inspect.isclass):
            if kind.__module__ == module.__name__:
                own = [n for n, v in vars(kind).items() if inspect.isfunction(v)]
                assert len(own) <= 15, kind
