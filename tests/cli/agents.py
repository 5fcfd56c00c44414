"""A program with an agent, as a user would write it, for the command line to serve."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

KEYS = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GOOGLE_API_KEY", "GEMINI_API_KEY", "HOLDFAST_MODEL")

# `slow` says a word and then nothing until it is aborted.
SHOP = '''
from pathlib import Path
from holdfast import Agent, Harness, Mode, tool
from holdfast.models.scripted import Fail, Say, ScriptedModel, Use
from holdfast.errors import ModelError

@tool(approval="ask")
def refund(order: str, cents: int = 1999) -> str:
    """Pay money back."""
    with open(Path(__file__).parent / "effects.txt", "a") as file:
        file.write(f"{order} {cents}\\n")
    return f"refunded {cents} of {order}"

def told(call):
    results = call.messages[-1].results
    return Say(" and ".join(result.content for result in results))

support = Agent(
    "Shop",
    instructions="Help.",
    tools=[refund],
    modes=[Mode("day"), Mode("night")],
)
MODEL = ScriptedModel.by_input(
    {
        "refund both": [
            Say(calls=[Use("refund", order="1"), Use("refund", order="2")]),
            told,
        ],
        "refund": [Say("I will.", calls=[Use("refund", order="42")]), told],
        "slow": Say(chunks=["begun ", "ended"], delay=3600.0),
        "fail": Fail(ModelError(model="scripted/shop", problem="no more")),
        "hello|again": Say("Good day to you."),
        "": Say("What?"),
    },
    ref="scripted/shop",
)

def serve(**settings):
    settings.setdefault("default_model", MODEL)
    return Harness(support, ttl=1.0, **settings)

def night(**settings):
    return Harness(Agent("Other", instructions="x"), default_model=MODEL, **settings)

broken = 1
'''


@pytest.fixture
def shop_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the program `shop.py`, where no key of any vendor is set."""
    folder = tmp_path / "program"
    folder.mkdir()
    (folder / "shop.py").write_text(SHOP)
    for name in KEYS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(folder)
    return folder


def effects(folder: Path) -> list[str]:
    """What the refund tool did, one line each."""
    path = folder / "effects.txt"
    return path.read_text().splitlines() if os.path.exists(path) else []
