"""Settings: in code or in a file, and all that is wrong with them told at once."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from holdfast import Agent
from holdfast.errors import InvalidSettings, InvalidValue
from holdfast.server import NoAuth, Settings, SharedSecret, create_app
from holdfast.server.auth.audit import FileAudit
from holdfast.server.preflight import known_callers
from holdfast.server.processes import ServePlan
from holdfast.server.settings import read
from holdfast.stores.registry import StoreRegistry

from .scene import model, serving, shop

DESK = Agent("desk", instructions="Help.")


def test_every_fault_is_told_at_once() -> None:
    wrong = {
        "agents": {"a": "nowhere:agent", "b": "nonsense", "c": "tests.server.scene:PATIENCE"},
        "stores": {"sqlite": "ftp://x", "postgres": {"url": "env:NOT_SET_ANYWHERE"}},
        "auth": {"kind": "magic"},
        "audit": {"sink": "pigeon"},
        "limits": {"rate": "fast"},
        "server": {"colour": "red", "tenants": ["~keys"]},
        "nonsense": {},
    }
    with pytest.raises(InvalidSettings) as caught:
        read(wrong)
    told = "\n".join(caught.value.faults)
    for word in (
        *("nowhere", "module:name", "PATIENCE", "stores.sqlite", "NOT_SET_ANYWHERE", "magic"),
        *("pigeon", "limits", "colour", "begins with", "[nonsense]"),
    ):
        assert word in told, word


def test_one_store_is_named_as_everywhere_else() -> None:
    settings = Settings(agents=[DESK], store="sqlite:shop.db")
    assert (settings.default, settings.stores) == ("sqlite", "sqlite:shop.db")
    with pytest.raises(InvalidSettings, match="cannot be combined"):
        Settings(agents=[DESK], store="sqlite:shop.db", stores={"file": "file:shop"})
    with pytest.raises(InvalidSettings, match="store is dict"):
        Settings(agents=[DESK], store={"file": "file:shop"})


@pytest.mark.parametrize(
    ("name", "table"),
    [
        ("two_person", "[server]"),
        ("body_bytes", "[limits]"),
        ("default_model", "[harness]"),
        ("secret", "[auth]"),
        ("sink", "[audit]"),
        ("dir", "[sandbox]"),
        ("kind", "[auth]"),
    ],
)
def test_a_setting_outside_of_its_table_is_told_where_it_belongs(name: str, table: str) -> None:
    with pytest.raises(InvalidSettings) as caught:
        read({name: True, "agents": {"shop": "tests.server.scene:shop"}})
    assert f"{name} is a setting of {table}: move it there" in caught.value.faults


@pytest.mark.parametrize(
    ("option", "what"), [("connections", "connections"), ("patience", "seconds")]
)
async def test_an_option_of_a_store_is_told_in_words(option: str, what: str) -> None:
    url = f"postgresql://127.0.0.1:1/x?{option}=zz"
    made = Settings(agents=[shop()], auth=NoAuth(), stores=url, harness={"default_model": model()})
    with pytest.raises(InvalidValue) as caught:
        await known_callers(made)
    assert str(caught.value) == f"{option} is 'zz': use a number of {what} from 1 to 3600"


@pytest.mark.parity("computeragent", "S1")
def test_a_server_without_agents_is_refused() -> None:
    with pytest.raises(InvalidSettings, match="no agent"):
        create_app(auth=NoAuth())


def test_what_is_wrong_with_an_agent_is_wrong_with_the_server() -> None:
    with pytest.raises(InvalidSettings, match="no model"):
        create_app(agents=[Agent("x", instructions="y")], auth=NoAuth())
    with pytest.raises(InvalidSettings, match="authenticate"):
        Settings(agents=[Agent("x", instructions="y")], auth=object()).check()  # type: ignore[arg-type]  # the point


def test_what_is_wrong_in_code_is_told_as_in_a_file(tmp_path: Path) -> None:
    wrong = Settings(
        agents=[DESK],
        auth=NoAuth(),
        harness={"default_modle": model()},
        audit=FileAudit(tmp_path / "nowhere" / "audit.jsonl"),
        origins=["https://shop.example"],
    )
    with pytest.raises(InvalidSettings) as caught:
        wrong.check()
    told = "\n".join(caught.value.faults)
    assert "harness.default_modle is not a setting: did you mean 'default_model'?" in told
    assert "audit.jsonl' cannot be written (its folder does not exist)" in told
    assert "origin 'https://shop.example' is not on this machine" in told
    with pytest.raises(InvalidSettings, match="tenants must be a list of strings"):
        Settings(agents=[DESK], auth=NoAuth(), tenants="main").check()


def test_a_file_says_it_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_SECRET", "correct horse battery staple")
    file = tmp_path / "server.toml"
    file.write_text(
        f"""
        [agents]
        shop = "tests.server.test_settings:made"
        [stores]
        sqlite = "sqlite:{tmp_path}/x.db"
        [stores.archive]
        url = "memory:"
        [auth]
        kind = "secret"
        secret = "env:A_SECRET"
        principal = "gateway"
        [audit]
        sink = "file"
        path = "{tmp_path}/audit.jsonl"
        [limits]
        body_bytes = 1000
        [server]
        default_store = "sqlite"
        two_person = true
        tenants = ["acme"]
        """
    )
    settings = Settings.load(file)
    assert isinstance(settings.stores, StoreRegistry)
    assert settings.stores.kinds == ["archive", "memory", "sqlite"]
    assert isinstance(settings.auth, SharedSecret)
    assert isinstance(settings.audit, FileAudit)
    assert (settings.limits.body_bytes, settings.two_person) == (1000, True)
    assert (settings.default, [*settings.tenants]) == ("sqlite", ["acme"])
    assert "horse" not in repr(settings)
    create_app(settings)


def made(**settings: object) -> object:
    from holdfast import Harness

    from .scene import shop

    return Harness(shop(), default_model=model(), **settings)  # type: ignore[arg-type]  # as given


async def test_a_file_can_name_a_model_that_needs_no_key(tmp_path: Path) -> None:
    text = """
        [agents]
        desk = "tests.server.test_settings:DESK"
        [auth]
        kind = "none"
        [harness]
        default_model = "scripted/offline"
        """
    file = tmp_path / "server.toml"
    file.write_text(text)
    async with serving(await asyncio.to_thread(Settings.load, file)) as api:
        await api("PUT", "/sessions/one")
        said = {"content": "Good day?"}
        done = await api("POST", "/sessions/one/messages?wait=true", said)
        assert "offline" in done["text"]
        assert "Good day?" in done["text"]


@pytest.mark.parametrize("text", ["[", "\xff"])
def test_a_file_that_is_none(tmp_path: Path, text: str) -> None:
    file = tmp_path / "server.toml"
    file.write_bytes(text.encode("latin-1"))
    with pytest.raises(InvalidSettings, match="not valid TOML"):
        Settings.load(file)
    with pytest.raises(InvalidSettings, match="No such file"):
        Settings.load(tmp_path / "none.toml")


def test_without_auth_only_loopback_is_bound() -> None:
    agents = {"shop": "tests.server.test_settings:made"}
    with pytest.raises(InvalidSettings, match="allows only loopback addresses"):
        ServePlan(agents=agents, auth="none", host="0.0.0.0").settings()
    with pytest.raises(InvalidSettings, match="share"):
        ServePlan(agents=agents, auth="none", workers=2).settings()
    with pytest.raises(InvalidSettings, match="certificate"):
        ServePlan(agents=agents, auth="none", cert="x.pem").settings()
    assert ServePlan(agents=agents, auth="none").settings().default == "memory"


def test_the_first_store_of_a_file_is_the_default(tmp_path: Path) -> None:
    file = tmp_path / "server.toml"
    file.write_text(
        f"""
        [agents]
        shop = "tests.server.test_settings:made"
        [stores]
        sqlite = "sqlite:{tmp_path}/x.db"
        file = "file:{tmp_path}/logs"
        """
    )
    assert Settings.load(file).default == "sqlite"


def test_pages_of_extensions_have_origins_too() -> None:
    for origin in ("chrome-extension://abcdef", "vscode-webview://1x2y", "https://shop.example"):
        given = {"default_model": model()}
        made = Settings(
            agents=[shop()], auth=SharedSecret("x" * 20), origins=[origin], harness=given
        )
        made.check()


def test_a_pipe_for_the_audit_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert list(FileAudit(tmp_path / "pipe").faults()) == []
    assert len(list(FileAudit(tmp_path).faults())) == 1
