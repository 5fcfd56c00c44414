"""The most common mistakes on the command line, each with its exact message: what is wrong, what
to do, and where it is explained."""

from __future__ import annotations

from pathlib import Path

import pytest

from .agents import shop_folder
from .conftest import Cli

__all__ = ["shop_folder"]

# Command line, and what stderr says after "error: ". The store has the sessions of `sample`.
MISTAKES = {
    "a store that does not exist": (
        ["sessions", "--store", "sqlite:missing.db"],
        "store: there is no store at 'missing.db'; pass your program's store with --store URL or "
        "HOLDFAST_STORE (docs/errors#invalid_value)",
    ),
    "a path instead of the URL of a store": (
        ["sessions", "--store", "shop.db"],
        "store URL has no scheme: use one of memory:, file:, sqlite:, postgresql:, postgres:, "
        "mongodb:, mongodb+srv:; a SQLite file is sqlite:PATH (docs/errors#invalid_value)",
    ),
    "a session that does not exist": (
        ["show", "nobody"],
        "no thread 'main' of session 'nobody' in tenant 'main': check the id, or create the "
        "session first; `holdfast sessions` lists the sessions (docs/errors#session_not_found)",
    ),
    "a verb with a typing error": (
        ["sesions"],
        'Unknown command "sesions". Did you mean "sessions"? See: holdfast --help',
    ),
    "a verb without the session": (
        ["show"],
        "show needs SESSION; see: holdfast show --help",
    ),
    "a duration that is none": (
        ["sweep", "--ttl", "10x"],
        "--ttl must be a duration such as 90s, 30min, 2h or 3d, got '10x'; see: "
        "holdfast sweep --help",
    ),
    "an approval when nothing is pending": (
        ["approve", "customer-43"],
        "nothing is pending in session 'customer-43'; `holdfast pending` lists pending items "
        "(docs/errors#not_pending)",
    ),
    "an agent without its module": (
        ["resume", "--agent", "shop"],
        "--agent must be module:name, got 'shop': write it like shop.agents:support "
        "(docs/errors#invalid_value)",
    ),
    "an agent in another folder": (
        ["resume", "--agent", "elsewhere:support"],
        "--agent: module 'elsewhere' does not exist; run the command in your program's folder, or "
        "install it (docs/errors#invalid_value)",
    ),
    "an agent with a typing error": (
        ["resume", "--agent", "shop:suport"],
        "--agent: module 'shop' has no 'suport'; its agents: support (docs/errors#invalid_value)",
    ),
    "an agent by its file": (
        ["resume", "--agent", "shop.py:support"],
        "--agent: module 'shop.py' does not exist; write the module without .py: shop "
        "(docs/errors#invalid_value)",
    ),
    "a model without its provider": (
        ["chat", "new", "--model", "gpt-5.1"],
        "agent 'holdfast-chat' is invalid: - model is 'gpt-5.1': write provider/model, such as "
        "openai/gpt-5.1 (docs/errors#invalid_agent)",
    ),
    "the session of another agent": (
        ["chat", "customer-43"],
        "--agent: session 'customer-43' belongs to agent 'help', not to 'holdfast-chat'; pass its "
        "agent with --agent module:name (docs/errors#invalid_value)",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_gets_its_message(
    mistake: str, shop: str, cli: Cli, shop_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(shop_folder))
    words, message = MISTAKES[mistake]
    ended = cli(*words)
    assert ended.err == f"error: {message}\n"
    assert ended.code in (1, 2)
    assert ended.out == ""


def test_an_item_that_was_decided_names_who_did_it(shop: str, cli: Cli) -> None:
    assert cli("approve", "customer-42", "--actor", "ann").code == 0
    ended = cli("deny", "customer-42", "p1")
    assert ended.err.startswith("error: item 'p1' was approved by ann at ")
    assert ended.err.endswith(
        "; `holdfast show SESSION` shows what happened since (docs/errors#already_decided)\n"
    )
