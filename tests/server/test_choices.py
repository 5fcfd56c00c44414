"""What clients may choose for their runs: models that are offered, and limits within the
operator's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast import Agent, Key, Mode, NewEvent, RunLimits, Store, SubAgent, connect
from holdfast.bundle import export_bundle
from holdfast.errors import InvalidSettings
from holdfast.models.scripted import Say, ScriptedModel, Use
from holdfast.server import Settings, create_app
from holdfast.server.loaders import InlineLoader
from holdfast.server.settings import read

from .scene import ALL, Api, Tokens, engine, serving, settings

ZIP = {"content-type": "application/zip"}
HOUSE = ("house/plain", "house/office", "house/helper", "house/spare")
DEAR = "house/dear"


def shop() -> Agent:
    return Agent(
        "shop",
        instructions="Help with orders.",
        model="house/plain",
        modes=[Mode("counter"), Mode("office", model="house/office", steps=9)],
        subagents=[
            SubAgent("helper", "Helps.", instructions="Help.", model="house/helper", steps=7)
        ],
    )


def made(stores: Any = "memory:", **more: Any) -> Settings:
    """A shop with several models, of which one is dear; runs have 4 steps and cost a dollar."""
    delegates = Say("", calls=[Use("subagent", agent="helper", task="Help.", model=DEAR)])
    texts: dict[str, Any] = {"Delegate": [delegates, "Delegated."], ".": "Good day."}
    models = [ScriptedModel.by_input(texts, ref=ref) for ref in (*HOUSE, DEAR)]
    harness = {
        "default_model": "house/plain",
        "fallback_models": ["house/spare"],
        "providers": models,
    }
    given = {
        "agents": [shop()],
        "run_limits": RunLimits(steps=4, cost=1.0),
        "auth": Tokens((*ALL, "admin")),
        **more,
    }
    given = {name: value for name, value in given.items() if value is not None}
    return settings(stores, harness={**harness, **given.pop("harness", {})}, **given)


@pytest.fixture
async def api() -> Any:
    async with serving(made()) as one:
        await one("PUT", "/sessions/one")
        yield one


VERBS = ("messages", "steer", "follow-ups")


@pytest.mark.parametrize("verb", VERBS)
async def test_a_client_cannot_lift_the_limits_of_the_operator(api: Api, verb: str) -> None:
    path = f"/sessions/one/{verb}"
    for limits, name, most in (
        ({"steps": 200, "cost": 1_000_000}, "steps", 4),
        ({"cost": 1.5}, "cost", 1.0),
    ):
        body = {"content": "Hello", "limits": limits}
        fields = await api.fails("invalid_value", "POST", path, body)
        assert (fields["field"], fields["limit"]) == (f"limits.{name}", most)
        assert str(most) in fields["remedy"]
    for wrong in ({"steps": None}, None, {"steps": "200"}):
        answer = await api.ask("POST", path, {"content": "Hello", "limits": wrong})
        assert answer.status_code == 400
    tight = {"steps": 2, "cost": 0.5, "tokens": 10_000, "seconds": 60}
    await api("POST", path, {"content": "Hello", "limits": tight}, status=202)
    transcript = await api("GET", "/sessions/one/transcript")
    assert len([one for one in transcript["items"] if one["role"] == "user"]) == 1


async def test_a_mode_has_its_own_number_of_steps(api: Api) -> None:
    await api("PUT", "/sessions/one/mode", {"mode": "office"})
    path = "/sessions/one/messages"
    await api("POST", path, {"content": "Hello", "limits": {"steps": 9}}, status=202)
    body = {"content": "Hello", "limits": {"steps": 10}}
    assert (await api.fails("invalid_value", "POST", path, body))["limit"] == 9


async def test_runs_have_fifty_steps_where_the_operator_says_nothing() -> None:
    async with serving(made(run_limits=None)) as api:
        await api("PUT", "/sessions/one")
        path = "/sessions/one/messages"
        body = {"content": "Hello", "limits": {"steps": 51}}
        assert (await api.fails("invalid_value", "POST", path, body))["limit"] == 50
        await api("POST", path, {"content": "Hello", "limits": {"cost": 1e6}}, status=202)


@pytest.mark.parametrize("ref", HOUSE)
async def test_models_that_the_operator_names_may_be_chosen(api: Api, ref: str) -> None:
    body = {"content": "Hello", "model": ref}
    done = await api("POST", "/sessions/one/messages?wait=true", body)
    assert done["status"] == "done"
    await api("PUT", "/sessions/one/model", {"model": ref})
    assert (await api("PUT", "/sessions/one/model", {"model": None}))["model"] == "house/plain"


@pytest.mark.parametrize(
    ("method", "path", "body", "field"),
    [
        *(
            ("POST", f"/sessions/one/{verb}", {"content": "a", "model": DEAR}, "model")
            for verb in VERBS
        ),
        ("PUT", "/sessions/one/model", {"model": DEAR}, "model"),
        ("PUT", "/sessions/one/model", {"model": DEAR, "mode": "office"}, "model"),
        ("PUT", "/sessions/one/model", {"model": "openai/gpt-5"}, "model"),
        ("POST", "/sessions", {"metadata": {"subagent_model": DEAR}}, "metadata.subagent_model"),
        (
            "PUT",
            "/sessions/two",
            {"metadata": {"subagent_model.helper": DEAR}},
            "metadata.subagent_model.helper",
        ),
        (
            "PATCH",
            "/sessions/one",
            {"metadata": {"subagent_model.helper": DEAR}},
            "metadata.subagent_model.helper",
        ),
    ],
)
async def test_no_route_takes_a_model_that_is_not_offered(
    api: Api, method: str, path: str, body: Any, field: str
) -> None:
    fields = await api.fails("invalid_value", method, path, body)
    assert fields["field"] == field
    assert "house/plain" in fields["remedy"]
    assert DEAR not in fields["remedy"]
    text = msgspec.json.encode(body).replace(b"house/dear", b"house/helper")
    text = text.replace(b"openai/gpt-5", b"house/helper")
    await api(method, path, msgspec.json.decode(text))  # with one that is offered


async def test_the_settings_list_the_models_that_may_be_chosen() -> None:
    async with serving(made(models=["other/*", DEAR])) as api:
        await api("PUT", "/sessions/one")
        path = "/sessions/one/messages?wait=true"
        done = await api("POST", path, {"content": "Hello", "model": DEAR})
        assert done["status"] == "done"
        fields = await api.fails(
            "invalid_value", "PUT", "/sessions/one/model", {"model": "house/office"}
        )
        assert fields["remedy"] == f"choose one of {DEAR}, other/*"
        done = await api("POST", path, {"content": "Hello"})  # what the agent names is its own
        assert done["status"] == "done"
    async with serving(made(models=["house/*"])) as api:
        await api("PUT", "/sessions/one")
        await api("PUT", "/sessions/one/model", {"model": DEAR})


async def test_a_model_chooses_for_its_sub_agents_among_those_that_are_offered(api: Api) -> None:
    body = {"content": "Delegate to the dear one."}
    done = await api("POST", "/sessions/one/messages?wait=true", body)
    assert done["status"] == "done"
    events = await api("GET", "/sessions/one/events")
    assert "is not one of the allowed models" in str(events)
    threads = await api("GET", "/sessions/one/threads?subagents=true")
    assert [row["thread"] for row in threads["items"]] == ["main"]


async def test_the_program_itself_may_choose_any(api: Api) -> None:
    (harness,) = [one for one in engine(api.app).harnesses if one.tenant == "acme"]
    limits = RunLimits(steps=200, cost=1e6)
    result = await harness.send("one", "Hello", model=DEAR, limits=limits)
    assert result.status == "done"
    session = await harness.open("one")
    assert await session.model.set(DEAR)
    await session.subagents.set_model(DEAR)
    received = await session.events(kinds=("message.received",))
    for verb, body in (("regenerate", None), ("edit", {"text": "Hello again"})):
        path = f"/sessions/one/messages/{received[0].seq}/{verb}"
        fields = await api.fails("invalid_value", "POST", path, body)
        assert fields["field"] == "model"


async def test_a_message_is_asked_again_with_what_it_came_with(api: Api) -> None:
    body = {"content": "Hello", "model": "house/office", "limits": {"steps": 2}}
    sent = await api("POST", "/sessions/one/messages", body)
    again = await api("POST", f"/sessions/one/messages/{sent['seq']}/regenerate", status=201)
    page = await api("GET", f"/sessions/one/events?thread={again['thread']}")
    asked = [event["data"] for event in page["items"] if event["kind"] == "message.received"]
    assert (asked[-1]["model"], asked[-1]["limits"]) == ("house/office", {"steps": 2})


# Agents that clients bring


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"model": DEAR}, "model"),
        ({"modes": [{"name": "a"}, {"name": "b", "model": DEAR}]}, "modes[1].model"),
        ({"modes": [{"name": "a", "steps": 5}]}, "modes[0].steps"),
    ],
)
async def test_an_agent_that_a_client_brings_is_held_to_the_same(
    change: dict[str, Any], field: str
) -> None:
    manifest = {"name": "Mine", "instructions": "Help."}
    async with serving(made(loaders=[InlineLoader()])) as api:
        for source, options in (({**manifest, **change}, {}), (manifest, change)):
            brought = {"loader": "inline", "source": {"manifest": source}, "options": options}
            fields = await api.fails("invalid_value", "PUT", "/sessions/one", {"source": brought})
            assert fields["field"] == field
        fine = {"model": "house/helper", "modes": [{"name": "a", "steps": 4}]}
        brought = {"loader": "inline", "source": {"manifest": {**manifest, **fine}}}
        await api("PUT", "/sessions/one", {"source": brought}, status=201)
        await api.fails("invalid_value", "PUT", "/sessions/one/model", {"model": DEAR})
        body = {"content": "Hello", "model": "house/office", "limits": {"steps": 4}}
        done = await api("POST", "/sessions/one/messages?wait=true", body)
        assert done["status"] == "done"


async def test_what_the_operator_makes_of_a_brought_agent_is_final() -> None:
    def harden(described: Any) -> Any:
        modes = [msgspec.structs.replace(mode, steps=40) for mode in described.modes]
        return msgspec.structs.replace(described, model=DEAR, modes=tuple(modes))

    async with serving(made(loaders=[InlineLoader()], harden=harden)) as api:
        manifest = {"name": "Mine", "instructions": "Help.", "modes": [{"name": "a", "steps": 50}]}
        source = {"loader": "inline", "source": {"manifest": {**manifest, "model": "any/thing"}}}
        await api("PUT", "/sessions/one", {"source": source}, status=201)
        assert (await api("GET", "/sessions/one/model"))["model"] == DEAR


# Sessions that clients bring


CREATED = ("session.created", {"agent": "shop", "user": "ann"})
HELLO = {"text": "Hello", "how": "queue"}


@pytest.mark.parametrize(
    ("events", "field"),
    [
        ([("model.changed", {"model": DEAR})], "model"),
        ([("metadata.changed", {"set": {"subagent_model": DEAR}})], "metadata.subagent_model"),
        ([("message.received", {**HELLO, "model": DEAR})], "model"),
        ([("message.received", {**HELLO, "limits": {"steps": 200}})], "limits.steps"),
    ],
)
async def test_a_bundle_does_not_go_on_with_more_than_is_allowed(
    api: Api, tmp_path: Path, events: list[Any], field: str
) -> None:
    data = await archive(tmp_path, *events)
    answer = await api.ask("POST", "/bundles", content=data, headers=ZIP)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_value")
    assert answer.json()["error"]["fields"]["field"].endswith(field)
    await api.fails("session_not_found", "GET", "/sessions/brought")
    read_only = await api.ask("POST", "/bundles?purpose=read", content=data, headers=ZIP)
    assert read_only.status_code == 201


async def archive(tmp_path: Path, *events: tuple[str, dict[str, Any]]) -> bytes:
    """A bundle of a session with these events."""
    store: Store = await connect("memory:")
    where = Key("acme", "brought", "main")
    news = [NewEvent.of(kind, data) for kind, data in (CREATED, *events)]
    await store.append(where, news, create=True)
    target = tmp_path / "bundle.zip"
    await export_bundle((store, where.scope), "local", purpose="copy", to=target)
    await store.aclose()
    return target.read_bytes()


# The settings


def test_settings_in_a_file_name_models_and_limits() -> None:
    tables = {
        "agents": {"shop": "tests.server.scene:shop"},
        "server": {"models": ["house/*", "openai/gpt-5.1"]},
        "run_limits": {"steps": 20, "cost": 0.5},
        "auth": {"kind": "none"},
        "harness": {"default_model": "scripted/offline"},
    }
    with pytest.raises(InvalidSettings) as refused:
        read(tables)  # `shop` is a function that takes no settings
    assert "agents" in str(refused.value)
    del tables["agents"]
    tables["loaders"] = {"inline": {}}
    found = read(tables)
    assert found.models == ["house/*", "openai/gpt-5.1"]
    assert found.run_limits == RunLimits(steps=20, cost=0.5)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"models": "house/plain"}, "models must be a list of strings"),
        ({"models": ["plain"]}, "'plain' is not a model"),
        ({"models": ["house/pl*"]}, "has a * in its name"),
        ({"run_limits": RunLimits(steps=0)}, "run_limits.steps is 0"),
        ({"run_limits": {"steps": 3}}, "run_limits"),
    ],
)
def test_wrong_models_and_limits_are_found_before_anything_is_opened(
    more: dict[str, Any], words: str
) -> None:
    with pytest.raises(InvalidSettings) as refused:
        create_app(made(**more))
    assert words in str(refused.value)
    with pytest.raises(InvalidSettings) as refused:
        read({"run_limits": {"steps": 1.5, "stepps": 1}, "loaders": {"inline": {}}})
    assert "run_limits.steps" in str(refused.value)
    assert "run_limits.stepps" in str(refused.value)
