"""The Docker sandbox, by what it says to `docker` and by what becomes of its commands."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest

from holdfast import InvalidValue
from holdfast.errors import OutsideSandbox, SandboxError
from holdfast.events import Key, key
from holdfast.harness.sandbox import DockerSandbox, Mount
from holdfast.harness.sandbox.docker import DockerPlace

from .fake import FakeDocker, values
from .waiting import alive, given_time, numbers, until

pytestmark = pytest.mark.parity("harness-kernel", 124)

NAME = "holdfast-" + hashlib.sha256(b'["main","s"]').hexdigest()[:16]


async def opened(
    docker: FakeDocker, tmp_path: Path, session: Key | None = None, **options: Any
) -> tuple[DockerSandbox, DockerPlace]:
    options = {"timeout": 100.0, "docker_path": docker.path, **options}
    sandbox = DockerSandbox("debian:12", tmp_path / "work", **options)
    return sandbox, await sandbox.open(session or key("s"), agent="a", resources="res")


async def test_a_container_is_named_by_its_session_and_shut_in(
    docker: FakeDocker, tmp_path: Path
) -> None:
    _, place = await opened(docker, tmp_path)
    create, start = docker.calls
    assert start == ["start", NAME]
    assert values("--name", create) == [NAME]
    assert create[-5:] == ["--entrypoint", "tail", "debian:12", "-f", "/dev/null"]
    [mount] = values("--mount", create)
    source = mount.split("source=")[1].split(",")[0]
    assert mount == f"type=bind,source={source},target=/workspace"
    assert os.path.dirname(source) == str(tmp_path / "work")
    assert values("--network", create) == ["none"]
    assert values("--user", create) == [f"{os.getuid()}:{os.getgid()}"]
    assert values("--cap-drop", create) == ["ALL"]
    assert values("--security-opt", create) == ["no-new-privileges"]
    assert values("--pids-limit", create) == ["512"]
    assert "--cpus" not in create
    assert "--memory" not in create
    assert place.folder == "/workspace"


async def test_options_are_said_to_docker(docker: FakeDocker, tmp_path: Path) -> None:
    await opened(
        docker,
        tmp_path,
        prefix="shop-7",
        cpus=1.5,
        memory="512m",
        pids=64,
        network="bridge",
        user="1000:1000",
        env={"TZ": "UTC"},
        read_only=True,
    )
    create = docker.calls[0]
    assert values("--name", create) == [NAME.replace("holdfast", "shop-7")]
    assert values("--cpus", create) == ["1.5"]
    assert values("--memory", create) == ["512m"]
    assert values("--pids-limit", create) == ["64"]
    assert values("--network", create) == ["bridge"]
    assert values("--user", create) == ["1000:1000"]
    assert values("--env", create) == ["HOME=/workspace", "TZ=UTC"]
    assert values("--mount", create)[0].endswith("target=/workspace,readonly")


@pytest.mark.parametrize("prefix", ["", "Shop", "-a", "a-", "a_b", "a.b", "a" * 47, "ä"])
def test_a_prefix_that_is_no_name_is_refused(tmp_path: Path, prefix: str) -> None:
    with pytest.raises(InvalidValue, match="prefix"):
        DockerSandbox("debian:12", tmp_path, prefix=prefix)


def test_a_long_prefix_is_a_name(tmp_path: Path) -> None:
    assert DockerSandbox("i", tmp_path, prefix="a" * 46).name(key("s").scope).startswith("a" * 46)


async def test_more_is_mounted_when_told(docker: FakeDocker, tmp_path: Path) -> None:
    seen = []

    def mounts(session: Key, resources: Any) -> list[Mount]:
        seen.append((session, resources))
        return [
            Mount(source="/data,1", target="/data", env="DATA"),
            Mount(source="sub", target="/sub", read_only=False),
        ]

    await opened(docker, tmp_path, mounts=mounts)
    assert seen == [(key("s"), "res")]
    create = docker.calls[0]
    own, data, sub = values("--mount", create)
    folder = own.split("source=")[1].split(",")[0]
    assert data == 'type=bind,"source=/data,1",target=/data,readonly'
    assert sub == f"type=bind,source={folder}/sub,target=/sub"
    assert "DATA=/data" in values("--env", create)


@pytest.mark.parametrize(
    ("mount", "error"),
    [
        (Mount(source="../other", target="/o"), OutsideSandbox),
        (Mount(source="/data", target="relative"), InvalidValue),
        (Mount(source="/data", target="/d", env="NOT-A-NAME"), InvalidValue),
    ],
)
async def test_a_mount_that_makes_no_sense_is_refused(
    docker: FakeDocker, tmp_path: Path, mount: Mount, error: type[Exception]
) -> None:
    with pytest.raises(error):
        await opened(docker, tmp_path, mounts=[mount])
    assert docker.calls == []


async def test_a_command_is_run_inside(docker: FakeDocker, tmp_path: Path) -> None:
    _, place = await opened(docker, tmp_path)
    env = {"TOKEN": "hush", "PATH": os.environ["PATH"], "DOCKER_HOST": "theirs"}
    line = 'cat; echo "$TOKEN $DOCKER_HOST $HOME"; pwd; echo err >&2; exit 4'
    ran = await place.run(line, cwd="a/b", env=env, stdin="in ")
    assert (ran.exit_code, ran.stderr) == (4, "err\n")
    assert ran.stdout.startswith("in hush theirs /workspace\n")
    assert ran.stdout.endswith("/a/b\n")
    call = docker.calls[-1]
    assert call[-4:] == [NAME, "sh", "-c", line]
    assert values("--workdir", call) == ["/workspace/a/b"]
    assert "--interactive" in call
    assert "hush" not in json.dumps(call), "others can see the arguments of a process"
    assert "DOCKER_HOST=theirs" in values("--env", call)

    await place.run(["ls", "-l"])
    call = docker.calls[-1]
    assert call[-3:] == [NAME, "ls", "-l"]
    assert "--interactive" not in call


async def test_files_are_those_of_the_workspace(docker: FakeDocker, tmp_path: Path) -> None:
    _, place = await opened(docker, tmp_path)
    await place.write("a/f", b"1")
    await place.write("/workspace/a/f", b"2", append=True)
    assert (await place.run("cat a/f")).stdout == "12"
    await place.run("echo made > g; ln -s /workspace/g inside; ln -s /etc outside")
    assert await place.read("inside") == b"made\n"
    assert await place.list("**/[fg]", limit=9) == ["g", "a/f"]
    for path in ("outside/passwd", "/etc/passwd", "../x"):
        with pytest.raises(OutsideSandbox):
            await place.read(path)
    with pytest.raises(OutsideSandbox):
        await place.run("true", cwd="outside")


async def test_what_is_read_only_is_not_written(docker: FakeDocker, tmp_path: Path) -> None:
    _, place = await opened(docker, tmp_path, read_only=True)
    with pytest.raises(SandboxError, match="read-only"):
        await place.write("f", b"")
    with pytest.raises(SandboxError, match="No such file"):
        await place.run("true", cwd="not/there")


ENDLESS = """
trap '' TERM
echo $$ > pid
setsid sleep 1000 &
echo $! >> pid
while :; do sleep 1000; done
"""


async def test_a_timeout_ends_the_command_inside(docker: FakeDocker, tmp_path: Path) -> None:
    _, place = await opened(docker, tmp_path, kill_grace=0.1)
    [folder] = (tmp_path / "work").iterdir()
    ran = await given_time(
        lambda seconds: place.run(ENDLESS, timeout=seconds),
        lambda _: len(numbers(folder / "pid")) == 2,
    )
    assert ran.timed_out
    pids = numbers(folder / "pid")
    assert len(pids) == 2
    await until(lambda: not any(map(alive, pids)))
    assert (await place.run("echo still here")).stdout == "still here\n"


async def test_a_cancelled_call_ends_the_command_inside(docker: FakeDocker, tmp_path: Path) -> None:
    _, place = await opened(docker, tmp_path, kill_grace=0.1)
    call = asyncio.create_task(place.run(ENDLESS))
    [folder] = (tmp_path / "work").iterdir()
    await until(lambda: len(numbers(folder / "pid")) == 2)
    pids = numbers(folder / "pid")
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await until(lambda: not any(map(alive, pids)))


async def test_with_the_workspace_kept_the_container_goes(
    docker: FakeDocker, tmp_path: Path
) -> None:
    sandbox, place = await opened(docker, tmp_path)
    await place.write("f", b"kept")
    await place.close("close")
    assert docker.calls[-1] == ["rm", "--force", NAME]
    assert docker.containers == {}
    await place.close("close")
    again = await sandbox.open(key("s"), agent="a", resources=None)
    assert await again.read("f") == b"kept"
    assert docker.did == ["create", "start", "rm", "create", "start"]


async def test_with_the_container_kept_it_is_stopped_and_started(
    docker: FakeDocker, tmp_path: Path
) -> None:
    sandbox, place = await opened(docker, tmp_path, persistence="container")
    await place.close("close")
    assert docker.calls[-1][0] == "stop"
    assert docker.containers == {NAME: False}
    again = await sandbox.open(key("s"), agent="a", resources=None)
    assert docker.containers == {NAME: True}
    assert (await again.run("echo on")).stdout == "on\n"
    await again.close("delete")
    assert docker.calls[-1] == ["rm", "--force", NAME]


async def test_what_a_deleted_session_left_is_removed_open_here_or_not(
    docker: FakeDocker, tmp_path: Path
) -> None:
    sandbox, place = await opened(docker, tmp_path, persistence="container")
    await place.write("f", b"1")
    await place.close("close")
    await sandbox.destroy(key("s").scope)
    assert docker.containers == {}
    assert os.listdir(tmp_path / "work") == []
    await sandbox.destroy(key("s").scope)  # there is none any more
    await sandbox.destroy(key("never").scope)


async def test_who_comes_second_takes_the_container_that_is_there(
    docker: FakeDocker, tmp_path: Path
) -> None:
    sandbox, one = await opened(docker, tmp_path)
    _, other = await opened(docker, tmp_path)  # as another process would
    assert docker.did == ["create", "start", "create", "start"]
    await one.write("f", b"1")
    assert (await other.run("cat f")).stdout == "1"

    third = await sandbox.open(key("s", thread="child"), agent="a", resources=None)
    await one.close("close")
    assert docker.containers == {NAME: True}, "another thread of the session is at work"
    await third.close("close")
    assert docker.containers == {}


async def test_a_container_that_is_gone_is_said_and_made_again(
    docker: FakeDocker, tmp_path: Path
) -> None:
    _, place = await opened(docker, tmp_path)
    docker.forget(NAME)
    with pytest.raises(SandboxError, match="not running"):
        await place.run("echo hi")
    assert (await place.run("echo hi")).stdout == "hi\n"


@pytest.mark.parametrize("call", ["create", "start"])
async def test_what_docker_refuses_is_said(docker: FakeDocker, tmp_path: Path, call: str) -> None:
    docker.play(**{call: (125, "pull access denied")})
    with pytest.raises(SandboxError, match=f"docker {call}: pull access denied"):
        await opened(docker, tmp_path)


async def test_a_removal_that_docker_refuses_is_said(docker: FakeDocker, tmp_path: Path) -> None:
    sandbox, place = await opened(docker, tmp_path)
    docker.play(rm=(1, "permission denied"))
    with pytest.raises(SandboxError, match="permission denied"):
        await sandbox.destroy(key("s").scope)
    with pytest.raises(SandboxError, match="permission denied"):
        await place.close("close")


async def test_without_docker_it_says_so(tmp_path: Path) -> None:
    sandbox = DockerSandbox("i", tmp_path, docker_path=str(tmp_path / "none"))
    with pytest.raises(SandboxError, match="cannot start"):
        await sandbox.open(key("s"), agent="a", resources=None)


def test_options_that_make_no_sense_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidValue, match="persistence"):
        DockerSandbox("i", tmp_path, persistence="for ever")  # type: ignore[arg-type]  # on purpose
    with pytest.raises(InvalidValue, match="env"):
        DockerSandbox("i", tmp_path, env={"A=B": ""})
