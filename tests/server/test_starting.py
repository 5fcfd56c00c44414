"""What a server says before it serves, when it begins and when it ends: every fault in one line
that names the remedy, for one worker as for several, and never a traceback."""

from __future__ import annotations

import asyncio
import datetime
import os
import re
import signal
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from holdfast import Store, StoreError
from holdfast.cli.app import run as cli
from holdfast.harness.sandbox import LocalSandbox
from holdfast.server.preflight import known_callers
from holdfast.server.settings import read
from holdfast.stores import retry
from tests import forks
from tests.cli.conftest import _far_from_home  # noqa: F401 - far from the user's files

from .scene import PATIENCE, serving, settings
from .test_serve import PROGRAM, Served

MODULES = {
    "front_shop": 'from holdfast import Agent\nagent = Agent("shop", instructions="Help.")\n'
    'second = Agent("second", instructions="Help.")\n',
    "front_desk": 'from holdfast import Agent\nagent = Agent("desk", instructions="Help.")\n'
    'twin = Agent("shop", instructions="Help.")\n',
    "front_broken": "1 / 0\n",
}
SECRET = "s3cr3t"
WAITED = "does not respond yet; waiting"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in MODULES.items():
        (tmp_path / f"{name}.py").write_text(text)
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


Refused = Callable[..., str]


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str]) -> Refused:
    """What `holdfast serve` says that does not begin: one line, and nothing else."""

    def run(*words: str, code: int = 1) -> str:
        assert cli(["serve", *words]) == code
        said = capsys.readouterr()
        assert said.out == ""
        # What is waited for is said after a while, which is another matter.
        (line,) = [one for one in said.err.splitlines() if not one.endswith(WAITED)]
        assert line.startswith("error: ")
        assert "Traceback" not in line
        assert "serving" not in line
        return line

    return run


@contextmanager
def served(folder: Path, *words: str, program: str = PROGRAM) -> Iterator[Served]:
    """`holdfast serve`, with these words, on a port that it finds."""
    server = Served.__new__(Served)
    (folder / "shop.py").write_text(program)
    server.process = forks.popen(
        *("-m", "holdfast.cli", "serve", *words, "--port", "0"),
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        yield server
    finally:
        server.close()


def line(server: Served) -> str:
    assert server.process.stdout is not None
    said: bytes = server.process.stdout.readline()
    return said.decode()


def started(server: Served) -> str:
    """The URL of a server with a console, whose address is the second line."""
    url = url_in(line(server))
    assert line(server).startswith("console: ")
    return url


def url_in(text: str) -> str:
    assert text.startswith("serving http"), text
    return text.split()[1]


# Agents


def test_agents_have_their_own_names(folder: Path) -> None:
    words = ("front_shop:agent", "front_desk:agent", "--store", "sqlite:x.db", "--auth", "none")
    with served(folder, *words, "--model", "scripted/offline") as server:
        url = url_in(line(server))
        for agent in ("shop", "desk"):
            made = httpx.put(f"{url}/sessions/{agent}", json={"agent": agent}, timeout=PATIENCE)
            assert made.json()["row"]["agent"] == agent


@pytest.mark.parametrize(
    ("agents", "code", "named"),
    [
        (["front_shop:agent", "front_desk:twin"], 2, ["front_shop:agent", "front_desk:twin"]),
        (["a=front_shop:agent", "a=front_shop:second"], 2, ["front_shop:agent", "'a'"]),
        (["a=front_shop:agent", "b=front_desk:twin"], 1, ["'a' and 'b'", "'shop'"]),
        (["=front_shop:agent"], 2, ["NAME=module:name"]),
    ],
)
def test_two_agents_of_one_name_are_refused(
    refused: Refused, agents: list[str], code: int, named: list[str]
) -> None:
    said = refused(*agents, "--store", "memory:", code=code)
    for word in named:
        assert word in said


# The store


def test_a_store_beside_a_file_of_settings_is_refused(refused: Refused, folder: Path) -> None:
    (folder / "s.toml").write_text('[agents]\nshop = "front_shop:agent"\n')
    assert "--config" in refused("--config", "s.toml", "--store", "sqlite:x.db", code=2)


def test_a_server_says_that_nothing_is_kept(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_STORE", "sqlite:x.db")
    text = '[agents]\nshop = "shop:shop"\n[auth]\nkind = "none"\n'
    (folder / "s.toml").write_text(text)
    with served(folder, "--config", "s.toml") as server:
        started(server)
        said = line(server)
    assert "in memory" in said
    assert "[stores] in s.toml" in said
    assert "HOLDFAST_STORE" in said
    assert not (folder / "x.db").exists()


@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.parametrize(
    ("store", "words"),
    [
        ("sqlite:bad.db", ["bad.db", "not an SQLite database"]),
        ("sqlite:nowhere/x.db", ["nowhere", "create it first"]),
        (f"postgresql://ann:{SECRET}@127.0.0.1:1/x?patience=1", ["127.0.0.1:1", "doctor"]),
        (f"mongodb://ann:{SECRET}@127.0.0.1:1/x?patience=1", ["did not answer", "doctor"]),
    ],
)
def test_a_store_that_does_not_open_is_told_before_anything_is_bound(
    refused: Refused, folder: Path, store: str, words: list[str], workers: str
) -> None:
    (folder / "bad.db").write_bytes(b"no database " * 1_000)
    said = refused("front_shop:agent", "--store", store, "--workers", workers, "--port", "0")
    for word in words:
        assert word in said
    assert SECRET not in said


def test_a_store_that_does_not_answer_is_said_to_be_waited_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    monkeypatch.setattr(retry, "SILENCE", 0.0)
    store = f"postgresql://ann:{SECRET}@127.0.0.1:1/x?patience=1"
    (folder / "s.toml").write_text(
        f'[stores]\npostgres = "{store}"\n[agents]\nshop = "front_shop:agent"\n'
        '[harness]\ndefault_model = "scripted/offline"\n'
    )
    for words, named in (
        (["serve", "front_shop:agent", "--store", store], "postgresql://127.0.0.1:1/x "),
        (["serve", "--config", "s.toml"], "the store of s.toml "),
        (["sessions", "--store", store], "postgresql://127.0.0.1:1/x "),
    ):
        assert cli(words) == 1
        said = capsys.readouterr().err
        assert said.startswith(named + WAITED)
        assert said.splitlines()[1].startswith("error: ")
        assert SECRET not in said
    assert cli(["sessions", "--json", "--store", store]) == 1
    assert WAITED not in capsys.readouterr().err


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_package_that_is_missing_is_told_with_its_extra(
    refused: Refused, monkeypatch: pytest.MonkeyPatch, workers: str
) -> None:
    for name in [name for name in sys.modules if name.startswith("holdfast.stores.postgres")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "asyncpg", None)
    store = "postgresql://127.0.0.1:1/x"
    said = refused("front_shop:agent", "--store", store, "--workers", workers, "--port", "0")
    assert "pip install 'holdfast[postgres]'" in said


def test_several_workers_are_said_to_serve_once_one_does(folder: Path) -> None:
    with served(folder, "shop:shop", "--store", "sqlite:x.db", "--workers", "2") as server:
        url = url_in(line(server))
        assert httpx.get(f"{url}/ready", timeout=PATIENCE).status_code == 200
        assert server.ended() == 0
        assert "stopping" in server.said()


# TLS


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_certificate_that_cannot_be_used_is_told(
    refused: Refused, folder: Path, workers: str
) -> None:
    def with_tls(*words: str) -> str:
        return refused("front_shop:agent", "--store", "sqlite:x.db", "--workers", workers, *words)

    (folder / "some.pem").write_text("no PEM\n")
    absent = with_tls("--tls-cert", "no.pem", "--tls-key", "some.pem")
    assert "--tls-cert 'no.pem'" in absent
    assert "--tls-key" not in absent
    assert "PEM" in with_tls("--tls-cert", "some.pem", "--tls-key", "some.pem")
    assert "also pass --tls-key" in with_tls("--tls-cert", "some.pem")


def test_a_key_of_another_certificate_is_told(refused: Refused, folder: Path) -> None:
    for name in ("one", "two"):
        certificate(folder, name)
    tls = ("--tls-cert", "one.pem", "--tls-key", "two.key")
    assert "do not match" in refused("front_shop:agent", "--store", "memory:", *tls)
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain("one.pem", "one.key")


def certificate(folder: Path, name: str) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    who = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now, day = datetime.datetime.now(datetime.UTC), datetime.timedelta(days=1)
    made = (
        x509.CertificateBuilder(who, who, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - day)
        .not_valid_after(now + day)
        .sign(key, hashes.SHA256())
    )
    pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    (folder / f"{name}.pem").write_bytes(made.public_bytes(pem))
    text = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain)
    (folder / f"{name}.key").write_bytes(text)


# A file of settings

WRONG = """
agents = ["front_shop:agent"]
auth = "keys"
[server]
grace = "10s"
origins = "https://shop.example"
envs = "HOME"
tenants = "main"
docs = "no"
two_person = "no"
orgins = []
[limits]
rate = "fast"
burts = 3
[harness]
default_modle = "scripted/offline"
window_tokens = "many"
[sandbox]
dri = "x"
timeout = "3s"
[loaders]
git = {}
local = {root = "nowhere"}
inline = {root = "x"}
[audit]
sink = "file"
path = "nowhere/audit.jsonl"
[stores]
sqlite = 3
[engines]
other = 3
[sandboxes]
"""


def test_every_wrong_type_and_name_in_a_file_is_told_at_once(
    refused: Refused, folder: Path
) -> None:
    (folder / "s.toml").write_text(WRONG)
    said = refused("--config", "s.toml")
    for fault in (
        "agents must be a table ([agents] with NAME",
        "auth must be a table ([auth] with kind",
        "server.grace must be a number of seconds",
        "server.origins must be a list of strings",
        "server.envs must be a list of strings",
        "server.tenants must be a list of strings",
        "server.docs must be true or false",
        "server.two_person must be true or false",
        "server.orgins is not a setting: did you mean 'origins'?",
        "limits.rate must be a number",
        "limits.burts is not a setting: did you mean 'burst'?",
        "harness.default_modle is not a setting: did you mean 'default_model'?",
        "harness.window_tokens must be a whole number",
        "sandbox.dri is not a setting: did you mean 'dir'?",
        "sandbox.timeout must be a number",
        "sandbox.dir is missing",
        "loaders.git.allowed is missing: set it to a list of strings",
        "loaders.local.root: the folder 'nowhere' does not exist",
        "loaders.inline.root is not a setting",
        "'nowhere/audit.jsonl' cannot be written",
        "stores.sqlite.url must be a string, got the number 3",
        "engines.other must be a table with the key `make`, got the number 3",
        "[sandboxes] is not a table: did you mean 'sandbox'?",
    ):
        assert fault in said, fault
    for word in ("__init__", "<lambda>", "keyword argument", "positional", "object"):
        assert word not in said
    assert len(re.findall(r"harness\.default_modle", said)) == 1


def test_what_is_no_agent_is_told_with_its_place(refused: Refused, folder: Path) -> None:
    text = """
    [agents]
    near = "front_shop:agnet"
    broken = "front_broken:agent"
    number = 3
    [auth]
    kind = "secret"
    secrt = "not to be told"
    [engines.other]
    make = "tests.server.test_starting:make"
    colour = "red"
    """
    (folder / "s.toml").write_text(text)
    said = refused("--config", "s.toml")
    for fault in (
        "agents.near: 'front_shop' has no 'agnet'; did you mean 'agent'?",
        "agents.broken: 'front_broken' cannot be imported (ZeroDivisionError",
        "agents.number must be module:name, such as shop:agent, got the number 3",
        "auth.secrt is not a setting: did you mean 'secret'?",
        "auth.secret is missing",
        "engines.other: colour is not a setting of this engine",
    ):
        assert fault in said, fault
    assert "not to be told" not in said


def make(agents: object, *, providers: object = None) -> object:
    return agents


def test_what_a_file_says_rightly_holds(folder: Path) -> None:
    (folder / "agents").mkdir()
    settings = read(
        {
            "agents": {"shop": "front_shop:agent"},
            "harness": {"default_model": "scripted/offline", "window_turns": 3},
            "auth": {"kind": "none", "principal": "ann"},
            "loaders": {"local": {"root": "agents"}, "git": {"allowed": ["https://x/"]}},
            "sandbox": {"dir": "new/places", "timeout": 3},
            "audit": {"sink": "file", "path": "audit.jsonl"},
            "server": {"origins": ["http://localhost:3000"], "grace": 3, "docs": False},
        }
    )
    assert (settings.grace, settings.docs, [*settings.loaders]) == (3, False, ["local", "git"])
    assert not (folder / "new").exists()
    assert not (folder / "audit.jsonl").exists()


@pytest.mark.parametrize("at", ["front_shop.py/inside", "/proc/nowhere"])
def test_a_folder_that_cannot_be_made_is_told(refused: Refused, at: str) -> None:
    said = refused("front_shop:agent", "--store", "memory:", "--sandbox", at)
    assert f"'{at}' cannot be created" in said


# Origins


@pytest.mark.parametrize(
    ("origin", "remedy"),
    [
        ("*", "list each allowed origin"),
        ("localhost:8001", "did you mean http://localhost:8001?"),
        ("https://shop.example/", "did you mean https://shop.example?"),
        ("https://shop.example:port", "as in https://shop.example"),
        ("https://shop.example", "use keys"),
    ],
)
def test_an_origin_that_no_page_has_is_refused(refused: Refused, origin: str, remedy: str) -> None:
    said = refused("front_shop:agent", "--store", "memory:", "--auth", "none", "--origin", origin)
    assert f"origin '{origin}'" in said
    assert remedy in said


def test_a_page_of_this_machine_may_ask_without_keys(folder: Path) -> None:
    origin = "http://localhost:3000"
    words = ("shop:shop", "--store", "sqlite:x.db", "--auth", "none", "--origin", origin)
    with served(folder, *words) as server:
        url = url_in(line(server))
        found = httpx.get(f"{url}/sessions", headers={"origin": origin}, timeout=PATIENCE)
    assert found.status_code == 200
    assert found.headers["access-control-allow-origin"] == origin


# Keys


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_a_whole_key_is_as_good_as_its_id_and_never_shown(
    folder: Path, capsys: pytest.CaptureFixture[str], form: list[str]
) -> None:
    store = ["--store", f"sqlite:{folder}/x.db"]

    def keys(*words: str) -> tuple[int, str, str]:
        code = cli(["keys", *words, *store])
        said = capsys.readouterr()
        return code, said.out.strip(), said.err

    key = keys("create", "ann")[1]
    for mangled in (f"{key}x", key[:-1], key.replace("hk_", "hk-")):
        code, out, err = keys("revoke", mangled, *form)
        assert code == 2
        assert key[20:40] not in out + err
        assert "keys list" in err
    assert keys("rotate", key, "--grace", "1h")[0] == 0
    code, out, err = keys("revoke", key, *form)
    assert (code, err) == (0, "")
    assert key[3:15] in out
    assert key[20:40] not in out


def test_a_server_whom_nobody_may_ask_says_how_a_key_is_made(folder: Path) -> None:
    with served(folder, "shop:shop", "--store", "sqlite:x.db", "--auth", "keys") as server:
        started(server)
        assert "holdfast keys create" in line(server)


def test_the_first_key_makes_the_store_of_this_user(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli(["keys", "create", "ann"]) == 0
    assert capsys.readouterr().out.startswith("hk_")
    assert (folder / "data" / "holdfast" / "holdfast.db").exists()


# The end


@pytest.mark.parametrize(("workers", "whole"), [("1", True), ("2", True), ("2", False)])
def test_ctrl_c_says_what_becomes_of_runs_and_the_second_ends_at_once(
    folder: Path, workers: str, whole: bool
) -> None:
    endless = PROGRAM.replace("delay=0.3", "delay=1_000")
    assert endless != PROGRAM

    def stop() -> None:
        if whole:  # as a terminal does
            os.killpg(server.process.pid, signal.SIGINT)
        else:
            server.process.send_signal(signal.SIGINT)

    words = ("--store", "sqlite:x.db", "--workers", workers, "--grace", "600", "--auth", "none")
    with served(folder, "shop:shop", *words, program=endless) as server:
        url = started(server)
        assert line(server).startswith("WARNING")
        httpx.put(f"{url}/sessions/c", json={}, timeout=PATIENCE)
        httpx.post(f"{url}/sessions/c/messages", json={"content": "Slow"}, timeout=PATIENCE)
        stop()
        said = line(server)
        assert "up to 600 s" in said
        assert "Ctrl-C again" in said
        stop()
        assert server.process.wait(60) == 130
        assert "Traceback" not in server.said()


ONCE = """
import pathlib
from holdfast import Agent
with pathlib.Path("imported").open("x"):
    agent = Agent("shop", instructions="Help.")
"""


def test_a_worker_that_cannot_begin_ends_the_server_with_an_error(folder: Path) -> None:
    words = ("shop:agent", "--store", "sqlite:x.db", "--workers", "2")
    with served(folder, *words, program=ONCE) as server:
        assert server.process.wait(60) == 1
        said = server.said()
    assert "FileExistsError" in said
    assert "a worker could not start" in said
    assert "serving" not in said
    assert "Traceback" not in said


# What clients are told


async def test_an_answer_names_no_folder_of_the_server(folder: Path) -> None:
    place = folder / "places"
    async with serving(settings(harness={"sandbox": LocalSandbox(place)})) as api:
        await api("PUT", "/sessions/one")
        await asyncio.to_thread(place.write_text, "in its way")
        path = "/sessions/one/files/content"
        said = await api("PUT", path, params={"path": "a.txt"}, content=b"x", status=422)
    assert said["error"]["code"] == "sandbox_failed"
    assert "File exists" in said["error"]["message"]
    assert str(folder) not in str(said)


async def test_what_a_builder_says_is_not_repeated() -> None:
    def broken(options: object) -> Store:
        raise RuntimeError(f"cannot connect to db://ann:{SECRET}@host")

    with pytest.raises(StoreError) as told:
        await known_callers(settings({"own": broken}))
    assert "RuntimeError" in str(told.value)
    assert SECRET not in str(told.value)
