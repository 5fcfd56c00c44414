"""A server without keys asks for its local token: a secret that only the user who started it can
read, so that nobody gets in for coming from this machine, as everybody behind a proxy does."""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from holdfast import Agent, tool
from holdfast.cli.app import run as cli
from holdfast.errors import InvalidSettings, InvalidValue
from holdfast.local_token import find, folder, keep, state_folder
from holdfast.models.scripted import Say, ScriptedModel, Use
from holdfast.server import Settings, create_app
from holdfast.server.auth.callers import LocalTokenAuth
from holdfast.server.processes import ServePlan
from holdfast.stores.url_display import address
from tests.servers.wire import Wire

from .scene import serving, settings
from .test_serve import PROGRAM, Served

LOCAL = ("--auth", "local")
TOKEN = re.compile(r"hl_[A-Za-z0-9]{43}")


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "state"
    monkeypatch.setenv("XDG_STATE_HOME", str(place))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.delenv("HOLDFAST_STORE", raising=False)
    monkeypatch.chdir(tmp_path)
    return place


@contextmanager
def served(place: Path, *options: str, port: int | None = None) -> Iterator[Served]:
    """`holdfast serve` that is told nothing about who may ask."""
    server = Served(place, *options, port=port, auth=None)
    try:
        server.ready()
        yield server
    finally:
        server.close()


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


def status(url: str, **more: Any) -> int:
    return httpx.get(f"{url}/v1/sessions", **more).status_code


def the_token() -> str:
    (one,) = find()
    return one.token


def said_by(*words: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    code = cli([*words])
    said = capsys.readouterr()
    return code, said.out, said.err


# Who gets in


def test_who_comes_through_a_plain_proxy_gets_nothing_without_the_token(tmp_path: Path) -> None:
    with served(tmp_path) as server, Wire(server.port) as proxy:
        # As nginx sends it with `proxy_pass` alone: from this machine, to it, and no word of where
        # it came from.
        behind = f"http://127.0.0.1:{proxy.port}"
        plain = {"host": f"127.0.0.1:{server.port}", "connection": "close"}
        refused = httpx.get(f"{behind}/v1/sessions", headers=plain)
        assert refused.status_code == 401
        assert "holdfast token" in refused.json()["error"]["message"]
        assert status(server.url) == 401
        assert status(server.url, headers=bearer(the_token())) == 200
        assert status(behind, headers={**plain, **bearer(the_token())}) == 200


def test_the_token_is_printed_once_and_kept_over_restarts(tmp_path: Path) -> None:
    said: list[tuple[int, list[str]]] = []
    for _ in range(2):
        with served(tmp_path, port=said[0][0] if said else None) as server:
            httpx.put(f"{server.url}/v1/sessions/a", headers=bearer("hl_" + "x" * 43))
            made = httpx.put(f"{server.url}/v1/sessions/a", headers=bearer(the_token()), json={})
            assert made.json()["row"]["user"] == "local"
            assert server.ended() == 0
            said.append((server.port, TOKEN.findall(server.said())))
    assert said[0] == said[1] == (said[0][0], [the_token()])


def test_another_store_at_the_same_port_has_another_token(tmp_path: Path) -> None:
    with served(tmp_path) as one:
        first = the_token()
    with served(tmp_path, "--store", "sqlite:y.db", port=one.port) as two:
        (second,) = {one.token for one in find(two.port)} - {first}
        assert status(two.url, headers=bearer(first)) == 401
        assert status(two.url, headers=bearer(second)) == 200
    assert [one.store for one in find(one.port)] == [
        f"sqlite:{tmp_path}/x.db",
        f"sqlite:{tmp_path}/y.db",
    ]


def test_two_servers_that_start_at_once_agree(tmp_path: Path) -> None:
    one = Served(tmp_path, "--host", "127.0.0.1", auth=None)
    two = Served(tmp_path, "--host", "127.0.0.2", port=one.port, auth=None)
    two.url = f"http://127.0.0.2:{one.port}"
    try:
        for server in (one, two):
            server.ready()
        for server in (one, two):
            assert status(server.url, headers=bearer(the_token())) == 200
    finally:
        one.close()
        two.close()


def test_only_a_bearer_header_counts(tmp_path: Path) -> None:
    with served(tmp_path) as server:
        token = the_token()
        for name in ("token", "key", "access_token", "authorization"):
            assert status(server.url, params={name: token}) == 401
        for header in (
            {"cookie": f"token={token}"},
            {"x-api-key": token},
            {"authorization": token},
            {"authorization": f"Basic {token}"},
            bearer(token[:-1]),
            bearer(token.lower()),
        ):
            assert status(server.url, headers=header) == 401


def test_those_who_guess_do_not_keep_the_user_out(tmp_path: Path) -> None:
    with served(tmp_path) as server:
        token = the_token()
        guessed = [status(server.url, headers=bearer(f"hl_{n}")) for n in range(100)]
        assert {*guessed} == {401}
        assert status(server.url, headers=bearer(token)) == 200


async def test_the_token_is_one_principal_and_cannot_approve_for_two() -> None:
    @tool(approval="ask", approvals=2)
    def wire(amount: int) -> str:
        """Send money."""
        return f"sent {amount}"

    model = ScriptedModel([Say("", calls=[Use("wire", amount=9)]), "Sent."], per_turn=True)
    agent = Agent("bank", instructions="Help.", tools=[wire])
    auth = LocalTokenAuth("hl_" + "a" * 43)
    given = settings(agents=[agent], harness={"default_model": model}, auth=auth)
    async with serving(given) as api:
        me = "hl_" + "a" * 43
        item = await api.ask_for_refund("one", by=me)
        path = f"/sessions/one/pending/{item}/approve"
        assert (await api("POST", path, by=me))["outcome"] == "voted"
        again = await api.fails("already_decided", "POST", path, by=me)
        assert (again["outcome"], again["by"]) == ("voted", "local")
        (still,) = (await api("GET", "/sessions/one/pending", by=me))["items"]
        assert still["approved_by"] == ["local"]


# Where it is


def test_the_token_is_its_users_alone(tmp_path: Path, state: Path) -> None:
    os.umask(before := os.umask(0))
    try:
        os.umask(0)
        one = keep(7700, "sqlite:/x.db")
    finally:
        os.umask(before)
    assert stat.S_IMODE(one.path.stat().st_mode) == 0o600
    for place in (state / "holdfast", state / "holdfast" / "tokens"):
        assert stat.S_IMODE(place.stat().st_mode) == 0o700
    assert [file.name for file in folder().iterdir()] == [one.path.name]
    assert one.token not in repr(one)


def test_a_folder_that_others_could_read_is_closed_to_them() -> None:
    folder().mkdir(parents=True)
    folder().chmod(0o755)
    keep(7700, "sqlite:/x.db")
    assert stat.S_IMODE(folder().stat().st_mode) == 0o700


def test_a_token_that_others_could_read_is_not_used(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with served(tmp_path) as server:
        path = find()[0].path
    path.chmod(0o644)
    again = Served(tmp_path, port=server.port, auth=None)
    try:
        assert again.process.wait(60) == 1
        said = again.said()
    finally:
        again.close()
    assert str(path) in said
    assert "delete it" in said
    assert "Traceback" not in said
    assert not TOKEN.search(said)
    code, out, _ = said_by("doctor", capsys=capsys)
    assert code == 1
    assert f"problem: local token: '{path}' can be read by others (mode 0644)" in out


@pytest.mark.parametrize("content", [b"", b"{}", b"hl_x", b'{"token":"x","port":1,"store":"y"}'])
def test_a_file_that_is_no_token_is_told(content: bytes) -> None:
    one = keep(7700, "sqlite:/x.db")
    one.path.write_bytes(content)
    with pytest.raises(InvalidValue, match="is not a token file; delete it"):
        keep(7700, "sqlite:/x.db")


def test_a_link_in_place_of_the_file_is_not_followed(tmp_path: Path) -> None:
    one = keep(7700, "sqlite:/x.db")
    one.path.rename(tmp_path / "elsewhere")
    one.path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InvalidValue, match="cannot be read"):
        keep(7700, "sqlite:/x.db")


def test_where_no_token_can_be_kept_the_remedy_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    server = Served(tmp_path, auth=None)
    try:
        assert server.process.wait(60) == 1
        said = server.said()
    finally:
        server.close()
    assert "XDG_STATE_HOME" in said
    assert "--auth keys" in said
    assert "Traceback" not in said


def test_no_password_of_a_store_gets_into_the_folder(
    capsys: pytest.CaptureFixture[str],
) -> None:
    url = "postgresql://ann:s3cr3t@db.example/shop?password=s3cr3t&sslpassword=s3cr3t"
    one = keep(7702, address(url))
    assert b"s3cr3t" not in one.path.read_bytes()
    assert "s3cr3t" not in one.path.name
    keep(7701, address(url))
    code, out, err = said_by("token", "--store", url, capsys=capsys)
    assert code == 1
    assert "--port 7702 --store postgresql://db.example/shop" in err
    assert "s3cr3t" not in out + err
    changed = url.replace("s3cr3t", "changed")
    assert said_by("token", "--port", "7702", "--store", changed, capsys=capsys)[0] == 0


def test_a_port_that_was_any_leaves_no_token_behind(tmp_path: Path) -> None:
    server = Served(tmp_path, port=0, auth=None)
    try:
        assert server.process.stdout is not None
        url = server.process.stdout.readline().decode().split()[1]
        assert httpx.get(f"{url}/sessions", headers=bearer(the_token())).status_code == 200
        assert server.ended() == 0
    finally:
        server.close()
    assert find() == []


def test_no_log_no_argument_and_no_variable_has_the_token(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(PROGRAM)
    (tmp_path / "server.toml").write_text(
        '[agents]\nshop = "shop:shop"\n[stores]\nsqlite = "sqlite:x.db"\n'
        '[auth]\nkind = "local"\n[audit]\nsink = "log"\n'
    )
    options = ("--config", "server.toml", "--workers", "2")
    server = Served(tmp_path, *options, auth=None, agent=None)
    try:
        server.ready()
        token = the_token()
        for path in ("/v1/sessions", f"/v1/{token}", f"/v1/sessions/{token}"):
            httpx.get(f"{server.url}{path}", headers=bearer(token))
        group = [
            pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if mine(pid, server)
        ]
        assert len(group) >= 3  # the server and its workers
        for pid in group:
            for name in ("cmdline", "environ"):
                assert token.encode() not in Path(f"/proc/{pid}/{name}").read_bytes()
        assert server.ended() == 0
        said = server.said()
    finally:
        server.close()
    records = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    assert len(records) >= 2
    assert said.count(token) == 1


def mine(pid: int, server: Served) -> bool:
    try:
        return os.getpgid(pid) == server.process.pid
    except ProcessLookupError:
        return False


@pytest.mark.parametrize(
    ("platform", "environ", "found"),
    [
        ("linux", {"XDG_STATE_HOME": "/s"}, "/s/holdfast"),
        ("linux", {"XDG_STATE_HOME": "relative"}, "/home/ann/.local/state/holdfast"),
        ("linux", {}, "/home/ann/.local/state/holdfast"),
        ("darwin", {"XDG_STATE_HOME": "/s"}, "/home/ann/Library/Application Support/holdfast"),
        ("win32", {"LOCALAPPDATA": "/local"}, "/local/holdfast"),
        ("win32", {}, "/home/ann/AppData/Local/holdfast"),
    ],
)
def test_the_state_folder_is_where_the_platform_has_it(
    platform: str, environ: dict[str, str], found: str
) -> None:
    assert state_folder(platform, environ, Path("/home/ann")) == Path(found)


# `holdfast token`


def test_without_a_token_the_command_says_how_to_get_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for words in (["token"], ["token", "--port", "7700"], ["token", "--store", "sqlite:x.db"]):
        code, out, err = said_by(*words, capsys=capsys)
        assert (code, out) == (1, "")
        assert "there is no local token" in err
        assert "holdfast serve" in err
    code, out, err = said_by("token", "--json", capsys=capsys)
    assert json.loads(err)["code"] == "invalid_value"


def test_of_several_tokens_each_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    made = [keep(7702, "sqlite:/a b.db"), keep(7701, "sqlite:/a.db"), keep(7701, "sqlite:/b.db")]
    code, out, err = said_by("token", capsys=capsys)
    assert (code, out) == (1, "")
    for named in ("--port 7701 --store sqlite:/a.db", "--port 7702 --store 'sqlite:/a b.db'"):
        assert named in err
    assert not TOKEN.search(err)
    assert said_by("token", "--port", "7701", capsys=capsys)[0] == 1
    assert said_by("token", "--port", "7702", capsys=capsys)[:2] == (0, f"{made[0].token}\n")
    only = said_by("token", "--store", "sqlite:/b.db", capsys=capsys)
    assert only[:2] == (0, f"{made[2].token}\n")


def test_the_usual_server_is_meant_where_none_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(7701, "sqlite:/a.db")
    usual = keep(7700, "sqlite:/b.db")
    assert said_by("token", capsys=capsys)[0] == 1
    monkeypatch.setenv("HOLDFAST_STORE", "sqlite:/b.db")
    assert said_by("token", capsys=capsys)[:2] == (0, f"{usual.token}\n")


def test_the_one_server_that_runs_is_meant(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keep(7701, "sqlite:/a.db")
    with served(tmp_path) as server:
        code, out, _ = said_by("token", capsys=capsys)
        assert code == 0
        assert status(server.url, headers=bearer(out.strip())) == 200
        told = json.loads(said_by("token", "--json", capsys=capsys)[1])
        assert (told["token"], told["port"], told["served"]) == (out.strip(), server.port, True)
        assert told["store"] == f"sqlite:{tmp_path}/x.db"
        known = said_by("doctor", "--json", capsys=capsys)[1]
        assert json.loads(known)["tokens"]["found"][1] == {
            "port": server.port,
            "store": told["store"],
            "served": True,
        }
        assert not TOKEN.search(known)
    assert said_by("token", capsys=capsys)[0] == 1


# Settings


def test_without_auth_a_server_warns_loudly(tmp_path: Path) -> None:
    server = Served(tmp_path, "--auth", "none")
    try:
        server.ready()
        assert status(server.url) == 200
        assert server.ended() == 0
        said = server.said()
    finally:
        server.close()
    assert "WARNING: this server requires no token" in said
    assert "proxy" in said
    assert not TOKEN.search(said)
    assert find() == []


def test_a_token_is_for_this_machine_alone() -> None:
    agents = {"shop": "tests.client.replica:clerk"}
    with pytest.raises(InvalidSettings, match="allows only loopback addresses, got host"):
        ServePlan(agents=agents, auth="local", host="0.0.0.0").settings()


def test_a_server_that_is_no_holdfast_serve_keeps_no_token(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text(
        '[agents]\nclerk = "tests.client.replica:clerk"\n[auth]\nkind = "local"\n'
    )
    with pytest.raises(InvalidSettings, match="auth `local` works only with `holdfast serve`"):
        create_app(Settings.load(tmp_path / "s.toml"))
    assert find() == []


async def test_before_it_is_known_nobody_is() -> None:
    from holdfast.server import RequestCredentials

    for header in ({}, {"authorization": "Bearer "}, {"authorization": "Bearer x"}):
        shown = RequestCredentials(method="GET", path="/", headers=header)
        assert await LocalTokenAuth().authenticate(shown) is None
    assert "hl_" not in repr(LocalTokenAuth("hl_" + "a" * 43))
