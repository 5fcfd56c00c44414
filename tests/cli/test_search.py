"""`holdfast search` and `holdfast reindex`."""

from __future__ import annotations

from pathlib import Path

from holdfast import NewEvent, Store, key

from .conftest import Cli, write


async def talk(store: Store) -> None:
    for session, text in (("one", "where is\norder_4711?"), ("two", "order_4711 is late")):
        created = NewEvent.of("session.created", {"user": session, "labels": ["vip"]})
        said = NewEvent.of("message.received", {"text": text}, actor="ann")
        await store.append(key(session), [created, said], create=True)


def test_matches_are_printed_with_their_place(tmp_path: Path, cli: Cli) -> None:
    url = f"sqlite:{tmp_path}/s.db"
    write(url, talk)
    ended = cli("search", "4711 -late", "--store", url)
    assert ended.code == 0, ended.err
    assert "one  event 2  user" in ended.out
    assert "    where is order_4711?" in ended.out
    assert "two" not in ended.out
    assert "no matches" in cli("search", "heron", "--store", url).err


def test_filters_and_cursors_narrow_a_search(tmp_path: Path, cli: Cli) -> None:
    url = f"sqlite:{tmp_path}/s.db"
    write(url, talk)

    def found(*arguments: str) -> list[str]:
        ended = cli("search", "order_4711", "--json", "--store", url, *arguments)
        assert ended.code == 0, ended.err
        return [hit["session"] for hit in ended.json["hits"]]

    assert sorted(found()) == ["one", "two"]
    assert found("--user", "one", "--label", "vip", "--since", "1h") == ["one"]
    assert found("--session", "two", "--kind", "message.received") == ["two"]
    assert found("--until", "1h") == found("--phase", "expired") == []
    first = cli("search", "order_4711", "--json", "--store", url, "--limit", "1", "--since", "1h")
    more = ("--limit", "1", "--since", "1h", "--cursor", first.json["cursor"])
    assert sorted([first.json["hits"][0]["session"], *found(*more)]) == ["one", "two"]


def test_reindex_builds_the_index_anew(tmp_path: Path, cli: Cli) -> None:
    url = f"sqlite:{tmp_path}/s.db"
    write(url, talk)
    assert cli("reindex", "--store", url).out == "indexed 2 threads\n"
    assert (tmp_path / "s.db.search").exists()
    assert cli("reindex", "--store", url, "--json").json == {"indexed": 2}


def test_a_query_that_names_nothing_is_one_line(tmp_path: Path, cli: Cli) -> None:
    url = f"sqlite:{tmp_path}/s.db"
    write(url, talk)
    ended = cli("search", "from:nobody", "--store", url)
    assert (ended.code, ended.err.count("\n")) == (1, 1)
    assert "from:user|assistant|tool" in ended.err
