"""What every sandbox promises, and the one that is none."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest

from holdfast.errors import SandboxError
from holdfast.events import key
from holdfast.harness.sandbox import DockerSandbox, LocalSandbox, NoSandbox, Sandbox

from .fake import FakeDocker

ROW = "harness-kernel"


@pytest.fixture(params=["local", "docker", "docker kept"])
def sandbox(request: pytest.FixtureRequest, tmp_path: Path, docker: FakeDocker) -> Sandbox:
    if request.param == "local":
        return LocalSandbox(tmp_path / "here")
    kept: Literal["container", "workspace"]
    kept = "container" if request.param == "docker kept" else "workspace"
    return DockerSandbox("i", tmp_path / "here", persistence=kept, docker_path=docker.path)


@pytest.mark.parity(ROW, 116)
async def test_files_outlive_a_close_and_not_a_destroy(sandbox: Sandbox) -> None:
    session = key("s")
    place = await sandbox.open(session, agent="a", resources=None)
    assert (await place.run("echo 1 > f; cat f")).stdout == "1\n"
    await place.close("close")
    await place.close("close")

    place = await sandbox.open(session, agent="a", resources=None)
    assert await place.read("f") == b"1\n"
    await place.close("delete")
    await sandbox.destroy(session.scope)
    await sandbox.destroy(session.scope)

    place = await sandbox.open(session, agent="a", resources=None)
    assert await place.list(limit=9) == []
    await place.close("delete")


@pytest.mark.parity(ROW, 116)
async def test_a_destroy_removes_one_session_alone(sandbox: Sandbox) -> None:
    one, other = [await sandbox.open(key(s), agent="a", resources=None) for s in ("1", "2")]
    await one.write("f", b"one")
    await other.write("f", b"other")
    await one.close("delete")
    await sandbox.destroy(key("1").scope)
    assert (await other.run("cat f")).stdout == "other"
    await other.close("close")


@pytest.mark.parity(ROW, 117)
async def test_without_a_sandbox_every_command_fails_and_says_what_to_pass() -> None:
    sandbox: Sandbox = NoSandbox()
    place = await sandbox.open(key("s"), agent="a", resources=None)
    ran = await place.run("echo hi", timeout=1)
    assert (ran.stdout, ran.exit_code, ran.timed_out) == ("", 1, False)
    assert "sandbox=LocalSandbox(" in ran.stderr
    for call in (place.read("f"), place.write("f", b""), place.list(limit=1)):
        with pytest.raises(SandboxError, match="LocalSandbox"):
            await call
    await place.close("close")
    await sandbox.destroy(key("s").scope)
