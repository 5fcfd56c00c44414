"""The recipes of `docs/recipes`, run as their pages say, with real servers and processes."""

from __future__ import annotations

import asyncio
import configparser
import hashlib
import hmac
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from holdfast import connect
from holdfast.log.events import Event, Key, NewEvent
from holdfast.webhooks import Deliverer, HttpSender, Webhooks, networks
from tests.examples.serving import PATIENCE, served
from tests.servers.process import free_port

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for program in EXAMPLES.glob("*.py"):
        shutil.copy(program, tmp_path)
    return tmp_path


def run(folder: Path, *words: str) -> str:
    ended = subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def uvicorn(app: str, port: int) -> list[str]:
    return ["-m", "uvicorn", app, "--port", str(port), "--log-level", "warning"]


async def finished(store: Path, key: Key, runs: int) -> list[Event]:
    """Wait for this number of finished runs; return the events."""
    seen: list[Event] = []
    async with asyncio.timeout(PATIENCE), connect(f"sqlite:{store}") as one:
        async for event in one.follow(key):
            if isinstance(event, Event):
                seen.append(event)
            if sum(each.kind == "run.finished" for each in seen) == runs:
                return seen
    raise AssertionError(seen)


def test_flask_answers_asks_and_goes_on_after_a_kill(folder: Path) -> None:
    port = free_port()
    words = ["-m", "flask", "--app", "flask_app", "run", "--port", str(port)]
    with served(words, folder, port) as server:
        chat = f"{server.url}/chats/c42"

        def post(path: str, **body: Any) -> Any:
            return httpx.post(f"{chat}/{path}", json=body, timeout=PATIENCE).json()

        asked = post("messages", text="refund order=42 cents=1999", key="1")
        assert asked["status"] == "waiting"
        server.restart()
        done = post(f"pending/{asked['pending'][0]['id']}", approved=True)
        assert "refunded 1999 cents of order 42" in done["text"]
        again = post("messages", text="refund order=42 cents=1999", key="1")
        assert again["text"] == done["text"]


async def test_a_webhook_that_is_delivered_twice_is_answered_once(folder: Path) -> None:
    port, body = free_port(), json.dumps({"id": "evt-1", "order": 42, "status": "lost"}).encode()
    signature = hmac.new(b"secret", body, hashlib.sha256).hexdigest()
    secret = {"WEBHOOK_SECRET": "secret"}
    with served(uvicorn("webhook:app", port), folder, port, secret) as server:
        async with httpx.AsyncClient(base_url=server.url, timeout=PATIENCE) as client:
            target, good = "/hooks/orders", {"x-signature": signature}
            bad = await client.post(target, content=body, headers={"x-signature": "no"})
            assert bad.status_code == 401
            answers = [await client.post(target, content=body, headers=good) for _ in range(2)]
            server.restart()
            answers.append(await client.post(target, content=body, headers=good))
        assert [answer.json() for answer in answers] == [{"seq": 2}] * 3
        worker = await asyncio.create_subprocess_exec(sys.executable, "worker.py", cwd=folder)
        try:
            seen = await finished(folder / "work.db", Key("acme", "order-42", "main"), 1)
        finally:
            worker.kill()
            await worker.wait()
    assert [event.kind for event in seen].count("message.received") == 1


def test_a_link_in_a_mail_approves_once(folder: Path) -> None:
    port, secret = free_port(), {"LINK_SECRET": "secret"}
    with served(uvicorn("email_approval:app", port), folder, port, secret) as server:
        text = {"text": "refund order=42 cents=1999"}
        httpx.post(f"{server.url}/chats/c42/messages", json=text, timeout=PATIENCE)
        link = f"{server.url}/decide/{_mailed(folder / 'server.log')}"
        server.restart()  # the link outlives the process
        shown = httpx.get(link, timeout=PATIENCE)
        assert "approve or deny" in shown.text
        wrong = httpx.post(f"{link}0", data={"verdict": "approve"}, timeout=PATIENCE)
        assert wrong.status_code == 403
        done = httpx.post(link, data={"verdict": "approve"}, timeout=PATIENCE)
        assert (done.status_code, done.json()) == (200, "approved")
        again = httpx.post(link, data={"verdict": "deny"}, timeout=PATIENCE)
        assert (again.status_code, again.json()["detail"]) == (409, "this was decided before")
        assert server.end(signal.SIGTERM) in (0, -signal.SIGTERM)


def _mailed(log: Path) -> str:
    end = time.monotonic() + PATIENCE
    while (found := re.search(r"/decide/(\S+)\n", log.read_text())) is None:
        assert time.monotonic() < end, log.read_text()
        time.sleep(0.05)
    return found[1]


async def test_a_follow_up_is_sent_by_a_worker_that_starts_later(folder: Path) -> None:
    said = await asyncio.to_thread(run, folder, "follow_up.py", "0.5")
    assert "scheduled: {'lamp': " in said
    worker = await asyncio.create_subprocess_exec(sys.executable, "worker.py", cwd=folder)
    try:
        seen = await finished(folder / "work.db", Key("acme", "customer-42", "main"), 2)
    finally:
        worker.kill()
        await worker.wait()
    assert "timer.fired" in {event.kind for event in seen}


def test_a_refund_is_probed_after_a_crash_and_made_once(folder: Path) -> None:
    crash = [sys.executable, "refund_probe.py", "crash"]
    assert subprocess.run(crash, cwd=folder, check=False).returncode == 9
    assert run(folder, "refund_probe.py") == "done 1 payment\n"


def test_a_daily_report_is_set_once(folder: Path) -> None:
    first = run(folder, "daily_report.py").splitlines()
    assert [line.split()[0] for line in first] == ["daily", "hourly"]
    assert run(folder, "daily_report.py").splitlines() == first


def test_a_subagent_is_approved_and_reports(folder: Path) -> None:
    said = run(folder, "subagents.py").splitlines()
    assert said == ["approve: refund(order='42')", "Done.", "clerk done"]


def test_the_tests_of_recorded_sessions_pass(folder: Path) -> None:
    assert "2 passed" in run(folder, "-m", "pytest", "-q", "test_replay.py")


def test_a_backup_is_checked(folder: Path) -> None:
    run(folder, "producer.py", "sqlite:shop.db", "acme", "order-42", "hello")
    assert run(folder, "backup.py", "shop.db", "backup.db") == "backup.db: 0 problems\n"


async def test_a_worker_is_replaced_without_a_pause(folder: Path) -> None:
    """As the page on upgrades says: the new process is started before the old one ends."""
    script = ["worker.py", f"sqlite:{folder}/work.db"]
    old = await asyncio.create_subprocess_exec(sys.executable, *script, cwd=folder)
    for n in range(3):
        words = ("producer.py", f"sqlite:{folder}/work.db", "acme", f"order-{n}", "hello")
        await asyncio.to_thread(run, folder, *words)
        new = await asyncio.create_subprocess_exec(sys.executable, *script, cwd=folder)
        await finished(folder / "work.db", Key("acme", f"order-{n}", "main"), 1)
        old.send_signal(signal.SIGTERM)
        async with asyncio.timeout(PATIENCE):
            assert await old.wait() in (0, -signal.SIGTERM)
        old = new
    old.kill()
    await old.wait()


def test_the_unit_starts_a_program_that_exists() -> None:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read(EXAMPLES / "deploy/holdfast-worker@.service")
    program = unit["Service"]["ExecStart"].split()[1]
    assert (EXAMPLES / program).exists()
    assert unit["Service"]["KillSignal"] == "SIGTERM"
    built = (EXAMPLES / "deploy/worker.Containerfile").read_text()
    assert f"COPY {program} ." in built


async def test_a_receiver_of_webhooks_takes_what_is_genuine_once(folder: Path) -> None:
    port = free_port()
    async with connect("memory:") as store, asyncio.timeout(PATIENCE):
        hooks, sender = Webhooks(store), HttpSender(networks(["127.0.0.0/8"]))
        made = await hooks.add(f"http://127.0.0.1:{port}/", kinds=["message.received"])
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "webhook_receiver.py"),
            cwd=folder,
            env={**os.environ, "WEBHOOK_SECRET": made.secret, "PORT": str(port)},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            while (await hooks.test(made.endpoint.id, sender)).status != 204:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
            said = [NewEvent.of("message.received", {"text": "hello"})]
            await store.append(Key("main", "c42", "main"), said, create=True)
            async with Deliverer(store, sender=sender, poll=0.02):
                assert process.stdout is not None
                lines = [await process.stdout.readline() for _ in range(2)]
            assert lines == [b"webhook.test None None\n", b"message.received c42 1\n"]
            await hooks.rotate(made.endpoint.id, grace=0)
            assert (await hooks.test(made.endpoint.id, sender)).status == 401
        finally:
            process.kill()
            await process.wait()
            await sender.aclose()
