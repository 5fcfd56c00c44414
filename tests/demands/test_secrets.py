"""Credentials where a program has them: in its environment, in headers, in the settings of a
provider, in the URL of a store, in the arguments of tools. They come out nowhere."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

import pytest

from holdfast import Agent, Harness, LogConfig, StoreError, connect, tool
from holdfast.bundle import export_bundle
from holdfast.models import PydanticAIProvider
from holdfast.models.scripted import Say, ScriptedModel, Use
from tests.models.standin import Standin

CANARIES = {
    "environment": "sk-" + "proj-" + "Env7Zk2Vw9Xb4Np6Tg8Hc3Rm5Env7Zk2Vw9Xb4",
    "header": "hdr7Zk2Vw9Xb4Np6Tg8Hc3Rm5",
    "provider": "sk-" + "ant-api03-" + "Prv7Zk2Vw9Xb4Np6Tg8Hc3Rm5Prv7Zk2Vw9Xb4",
    "url": "Url7Zk2Vw9Xb4Np6",
    "argument": "ghp_" + "Arg7Zk2Vw9Xb4Np6Tg8Hc3Rm5Arg7Zk2Vw9X",
}


@tool
async def fetch(url: str, headers: dict[str, str]) -> str:
    """Fetch a page."""
    raise RuntimeError(f"{url} refused {headers} and {os.environ['VENDOR_API_KEY']}")


@pytest.mark.parity("user-demand", 57)
async def test_no_credential_is_in_a_bundle_an_error_or_a_line_of_a_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("VENDOR_API_KEY", CANARIES["environment"])
    caplog.set_level(logging.DEBUG, logger="holdfast")
    told: list[str] = []
    away = f"postgresql://shop:{CANARIES['url']}@127.0.0.1:1/x?patience=1"
    with pytest.raises(StoreError) as refused:
        await connect(away)
    told += [str(refused.value), repr(refused.value), repr(refused.value.fields)]

    asked = Use(
        "fetch",
        url=f"https://example.org/?token={CANARIES['argument']}",
        headers={"Authorization": f"Bearer {CANARIES['header']}"},
    )
    script = ScriptedModel([Say(calls=[asked]), "It did not work."], per_turn=True)
    agent = Agent("shop", instructions="Help.", tools=[fetch])
    records: list[Any] = []
    debug = LogConfig(level="debug", sinks=[records.append])
    async with Standin() as vendor:
        provider = PydanticAIProvider(
            "lab", kind="openai-chat", api_key=CANARIES["provider"], base_url=f"{vendor.url}/v1"
        )
        vendor.refuse(401, {"error": {"message": f"wrong key {CANARIES['provider']}"}})
        async with Harness(
            agent,
            providers=[provider],
            default_model=script,
            store=f"sqlite:{tmp_path / 'x.db'}",
            logging=debug,
        ) as harness:
            session = await harness.get_or_create("s")
            assert (await session.send("Fetch it.")).text == "It did not work."
            failed = await session.send("And now?", model="lab/gpt")
            assert failed.status == "failed"
            told += [repr(failed), str(failed.error)]
            for mode in ("sanitized", "replay_only"):
                bundle = await export_bundle(session, mode)
                told.append(bundle.to_json().decode())
    told += [repr(record) for record in records]
    told += [caplog.handler.format(r) for r in caplog.records if r.name.startswith("holdfast")]
    assert "fetch" in "\n".join(told), "the scan sees what is there"
    for place, canary in CANARIES.items():
        assert not [text for text in told if canary in text], place
