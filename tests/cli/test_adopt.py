"""`holdfast adopt`: gives a session that an agent SDK wrote to an agent."""

from __future__ import annotations

from holdfast import Store, key

from .conftest import Cli, created, said, write


def test_a_session_of_an_sdk_belongs_to_the_agent_then(url: str, cli: Cli) -> None:
    async def talked(store: Store) -> None:
        await store.append(key("s"), [created(agent="openai"), said("one")], create=True)

    write(url, talked)
    ended = cli("adopt", "s", "--agent", "shop", "--reason", "moved", "--store", url)
    assert (ended.code, ended.out) == (0, "session s belongs to agent shop now\n")
    shown = cli("show", "s", "--json", "--store", url).json
    assert shown["events"][-1]["data"] == {"agent": "shop", "reason": "moved"}
    again = cli("adopt", "s", "--agent", "shop", "--json", "--store", url)
    assert again.json == {"session": "s", "agent": "shop"}
    other = cli("adopt", "s", "--agent", "bank", "--store", url)
    assert (other.code, other.out) == (1, "")
    assert "belongs to agent 'shop'" in other.err
