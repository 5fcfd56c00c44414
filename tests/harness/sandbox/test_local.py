"""Commands of the local sandbox: what they are given, what they give back, and their end."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from holdfast import InvalidValue
from holdfast.errors import OutsideSandbox, SandboxError
from holdfast.events import Key, key
from holdfast.harness.sandbox import LocalSandbox, Place, Sandbox

from .waiting import alive, given_time, numbers, until

ROW = "harness-kernel"


async def opened(sandbox: Sandbox, session: Key = key("s")) -> Place:  # noqa: B008
    return await sandbox.open(session, agent="a", resources=None)


@pytest.mark.parity(ROW, 118)
async def test_a_command_gives_its_streams_and_its_exit_code(place: Place) -> None:
    ran = await place.run("echo out; echo err >&2; exit 3")
    assert (ran.stdout, ran.stderr, ran.exit_code) == ("out\n", "err\n", 3)
    assert (ran.signal, ran.timed_out, ran.truncated) == (None, False, False)
    assert ran.seconds > 0


@pytest.mark.parity(ROW, 118)
@pytest.mark.parametrize("given", ["größer\n" * 50_000, b"\x00\xffbytes" * 50_000, "", None])
async def test_a_command_reads_what_it_is_given(place: Place, given: bytes | str | None) -> None:
    ran = await place.run("cat > kept; wc -c < kept", stdin=given)
    data = given.encode() if isinstance(given, str) else given or b""
    assert (ran.exit_code, int(ran.stdout)) == (0, len(data))
    assert await place.read("kept") == data


async def test_what_a_command_does_not_read_is_no_failure(place: Place) -> None:
    ran = await place.run("exec true", stdin=b"x" * 1_000_000)
    assert ran.exit_code == 0


@pytest.mark.parity(ROW, 118)
async def test_a_command_finds_the_environment_of_its_call(place: Place) -> None:
    ran = await place.run('echo "$WHO:$HOME"', env={"WHO": "me", "HOME": "/elsewhere"})
    assert ran.stdout == "me:/elsewhere\n"


@pytest.mark.parity(ROW, 118)
async def test_a_command_starts_in_its_folder_which_is_made(place: Place) -> None:
    assert (await place.run("pwd")).stdout == f"{place.folder}\n"
    for cwd in ("a/b c", f"{place.folder}/a/b c", "x/../a/b c"):
        assert (await place.run("pwd; pwd -P", cwd=cwd)).stdout == f"{place.folder}/a/b c\n" * 2


async def test_words_are_not_read_by_a_shell(place: Place) -> None:
    assert (await place.run(["echo", "$HOME; *"])).stdout == "$HOME; *\n"


async def test_a_program_that_is_not_there_is_an_error(place: Place) -> None:
    with pytest.raises(SandboxError, match="cannot start 'no-such-program'") as caught:
        await place.run(["no-such-program"])
    assert isinstance(caught.value.__cause__, FileNotFoundError)
    with pytest.raises(SandboxError, match="null"):
        await place.run(["echo", "a\0b"])


@pytest.mark.parametrize("wrong", [{"command": ""}, {"command": []}, {"timeout": 0}])
async def test_a_command_that_cannot_be_run_is_refused(
    place: Place, wrong: dict[str, object]
) -> None:
    with pytest.raises(InvalidValue):
        await place.run(**{"command": "true", **wrong})  # type: ignore[arg-type]  # on purpose


@pytest.mark.parity(ROW, 118)
async def test_a_signal_that_killed_it_is_told(place: Place) -> None:
    ran = await place.run("kill -KILL $$")
    assert (ran.exit_code, ran.signal, ran.timed_out) == (None, signal.SIGKILL, False)


@pytest.mark.parity(ROW, 119)
@pytest.mark.parametrize("cwd", ["..", "a/../..", "/", "/etc", "../files-too", "/tmp"])
async def test_a_folder_outside_is_refused(place: Place, cwd: str) -> None:
    with pytest.raises(OutsideSandbox) as caught:
        await place.run("touch was-here", cwd=cwd)
    assert caught.value.fields["path"] == cwd
    assert await place.list(limit=10) == []


@pytest.mark.parity(ROW, 119)
async def test_a_folder_beside_whose_name_begins_alike_is_outside(place: Place) -> None:
    os.mkdir(f"{place.folder}-too")
    with pytest.raises(OutsideSandbox):
        await place.run("true", cwd=f"{place.folder}-too")


@pytest.mark.parity(ROW, 120)
@pytest.mark.parametrize("target", ["/etc", "..", "../..", "in/../../..", "{folder}/../.."])
async def test_a_link_that_leads_outside_is_no_folder_to_start_in(
    place: Place, root: Path, target: str
) -> None:
    (root / "in").mkdir()
    (root / "link").symlink_to(target.format(folder=place.folder))
    for cwd in ("link", "link/deeper", "in/../link"):
        with pytest.raises(OutsideSandbox):
            await place.run("true", cwd=cwd)


async def test_a_link_that_stays_inside_is_followed(place: Place, root: Path) -> None:
    (root / "a/b").mkdir(parents=True)
    (root / "near").symlink_to("a/b")
    (root / "far").symlink_to(f"{place.folder}/a/b")
    (root / "a/up").symlink_to("..")
    for cwd in ("near", "far", "a/up/near", "a/up/a/up/far"):
        assert (await place.run("pwd -P", cwd=cwd)).stdout == f"{place.folder}/a/b\n"


# The end of a command

TREE = """
trap '' TERM
sh -c 'trap "" TERM; echo $$ >> pids; while :; do sleep 1000; done' &
setsid sh -c 'echo $$ >> pids; exec sleep 1000' &
( sh -c 'trap "" HUP TERM; echo $$ >> pids; setsid sleep 1000; sleep 1000' & )
echo $$ >> pids
while :; do sleep 1000; done
"""


@pytest.mark.parity(ROW, 121)
@pytest.mark.parametrize("grace", [0.05, 0.5])
async def test_a_timeout_ends_the_whole_tree(tmp_path: Path, grace: float) -> None:
    place = await opened(LocalSandbox(tmp_path, kill_grace=grace))
    found = Path(place.folder) / "pids"
    ran = await given_time(
        lambda seconds: place.run(f"rm -f pids; {TREE}", timeout=seconds),
        lambda _: len(numbers(found)) == 4,
    )
    assert (ran.timed_out, ran.exit_code, ran.signal) == (True, None, signal.SIGKILL)
    pids = numbers(found)
    assert len(pids) == 4
    await until(lambda: not any(map(alive, pids)))


@pytest.mark.parity(ROW, 121)
async def test_a_command_may_clean_up_before_it_is_killed(tmp_path: Path) -> None:
    place = await opened(LocalSandbox(tmp_path, kill_grace=60))
    line = "trap 'echo bye; touch cleaned; exit 7' TERM; echo hi; while :; do sleep 0.01; done"
    ran = await given_time(
        lambda seconds: place.run(line, timeout=seconds), lambda ran: "hi" in ran.stdout
    )
    assert (ran.timed_out, ran.exit_code, ran.stdout) == (True, 7, "hi\nbye\n")
    assert await place.list(limit=2) == ["cleaned"]


@pytest.mark.parity(ROW, 121)
async def test_a_cancelled_call_ends_the_whole_tree_before_it_returns(place: Place) -> None:
    pids = Path(place.folder) / "pids"
    call = asyncio.create_task(place.run(TREE))
    await until(lambda: len(numbers(pids)) == 4)
    assert all(map(alive, numbers(pids)))
    call.cancel()
    await asyncio.sleep(0)
    call.cancel()  # once more does not hurry it
    with pytest.raises(asyncio.CancelledError):
        await call
    await until(lambda: not any(map(alive, numbers(pids))))


async def test_closing_ends_what_runs_and_refuses_what_comes(place: Place) -> None:
    pids = Path(place.folder) / "pids"
    call = asyncio.create_task(place.run(TREE))
    await until(lambda: len(numbers(pids)) == 4)
    await place.close("close")
    ran = await call
    assert (ran.timed_out, ran.signal) == (False, signal.SIGKILL)
    await until(lambda: not any(map(alive, numbers(pids))))
    await place.close("close")
    with pytest.raises(SandboxError, match="closed"):
        await place.run("true")


@pytest.mark.parity(ROW, 121)
@pytest.mark.parametrize("start", ["", "setsid ", "nohup ", "env -i "])
async def test_one_who_holds_the_pipes_does_not_hold_us(place: Place, start: str) -> None:
    ran = await place.run(f"{start}sleep 1000 & echo $! > pid; echo done")
    assert (ran.stdout.splitlines()[-1], ran.exit_code, ran.timed_out) == ("done", 0, False)
    pid = int(await place.read("pid"))
    await until(lambda: not alive(pid))


@pytest.mark.parity(ROW, 121)
async def test_one_who_writes_for_ever_does_not_hold_us(place: Place) -> None:
    ran = await place.run("yes & echo $! > pid")
    assert (ran.exit_code, ran.timed_out) == (0, False)
    pid = int(await place.read("pid"))
    await until(lambda: not alive(pid))


async def test_one_who_hides_from_us_does_not_hold_us(place: Place) -> None:
    ran = await place.run(
        "env -i setsid sh -c 'touch up; exec sleep 1000' & "
        "while [ ! -e up ]; do sleep 0.01; done; echo done"
    )
    assert (ran.stdout, ran.exit_code) == ("done\n", 0)
    hidden = [int(n) for n in os.listdir("/proc") if n.isdigit() and runs_in(n, place.folder)]
    for pid in hidden:  # what it is not: a prison
        os.kill(pid, signal.SIGKILL)
    assert len(hidden) == 1


def runs_in(pid: str, folder: str) -> bool:
    try:
        return os.readlink(f"/proc/{pid}/cwd") == folder and alive(int(pid))
    except OSError:
        return False


async def test_a_command_of_a_command_is_ended_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_COMMAND", "outer")
    place = await opened(LocalSandbox(tmp_path))
    said = (await place.run("echo $HOLDFAST_COMMAND")).stdout.strip()
    assert said.startswith("outer/")
    assert len(said) > len("outer/")


# Output


@pytest.mark.parity(ROW, 122)
async def test_output_beyond_the_limit_is_dropped_and_said(place: Place) -> None:
    ran = await place.run("head -c 20000000 /dev/zero | tr '\\0' x; echo small >&2; exit 5")
    assert (len(ran.stdout), ran.stderr, ran.truncated) == (1_000_000, "small\n", True)
    assert ran.exit_code == 5, "it ran to its end"


@pytest.mark.parity(ROW, 122)
@pytest.mark.parametrize("stream", ["1", "2"])
async def test_each_stream_has_the_limit(tmp_path: Path, stream: str) -> None:
    place = await opened(LocalSandbox(tmp_path, output_limit=10))
    exact = await place.run(f"printf 0123456789 >&{stream}")
    assert (exact.stdout + exact.stderr, exact.truncated) == ("0123456789", False)
    over = await place.run(f"printf 0123456789a >&{stream}")
    assert (over.stdout + over.stderr, over.truncated) == ("0123456789", True)


async def test_no_character_is_split(tmp_path: Path) -> None:
    text = "ä€😀" * 40_000
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared/text").write_text(text)
    whole = await opened(LocalSandbox(tmp_path / "shared", shared=True))
    slow = "head -c 4 text; sleep 0.01; tail -c +5 text"
    assert (await whole.run(slow)).stdout == text
    for limit in range(9, 18):
        place = await opened(LocalSandbox(tmp_path / "shared", shared=True, output_limit=limit))
        ran = await place.run("cat text")
        assert text.startswith(ran.stdout)
        assert limit - 3 <= len(ran.stdout.encode()) <= limit
    assert (await whole.run("printf 'a\\377b'")).stdout == "a�b"


# Environment


@pytest.mark.parity(ROW, 123)
async def test_the_environment_is_clean_unless_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET", "hush")
    ours = {"_", "PWD", "SHLVL", "HOLDFAST_COMMAND"}

    async def found(sandbox: LocalSandbox) -> dict[str, str]:
        said = (await (await opened(sandbox)).run("printenv")).stdout
        pairs = dict(line.split("=", 1) for line in said.splitlines() if "=" in line)
        return {name: value for name, value in pairs.items() if name not in ours}

    minimal = await found(LocalSandbox(tmp_path))
    place = await opened(LocalSandbox(tmp_path))
    assert minimal == {
        "PATH": os.environ["PATH"],
        "HOME": place.folder,
        "LANG": "C.UTF-8",
        "TMPDIR": str(Path(place.folder).with_name("tmp")),
    }
    assert os.listdir(minimal["TMPDIR"]) == []
    own = await found(LocalSandbox(tmp_path, env={"LANG": "C", "MINE": "1"}))
    assert own == {**minimal, "LANG": "C", "MINE": "1"}
    inherited = await found(LocalSandbox(tmp_path, env="inherit"))
    assert (inherited["SECRET"], inherited["HOME"]) == ("hush", os.environ["HOME"])


async def test_no_login_shell_reads_a_profile(tmp_path: Path) -> None:
    place = await opened(LocalSandbox(tmp_path))
    for name in (".profile", ".bash_profile", ".bashrc"):
        await place.write(name, b"echo from a profile\n")
    assert (await place.run("echo plain")).stdout == "plain\n"


@pytest.mark.parametrize("shell", ["/bin/sh", "/bin/bash"])
async def test_text_is_run_by_the_shell_that_was_named(tmp_path: Path, shell: str) -> None:
    place = await opened(LocalSandbox(tmp_path, shell=shell))
    assert (await place.run("echo $0")).stdout == f"{shell}\n"


@pytest.mark.parametrize("wrong", [{"env": "all"}, {"timeout": 0}, {"output_limit": -1}])
def test_options_that_make_no_sense_are_refused(tmp_path: Path, wrong: dict[str, object]) -> None:
    with pytest.raises(InvalidValue) as caught:
        LocalSandbox(tmp_path, **wrong)  # type: ignore[arg-type]  # on purpose
    assert caught.value.field in wrong


async def test_many_commands_run_at_once(place: Place) -> None:
    # Each waits for all others: one after the other they would not end.
    meet = "touch $0; while [ $(ls | wc -l) -lt 20 ]; do sleep 0.01; done"
    rans = await asyncio.gather(*(place.run(["sh", "-c", meet, str(n)]) for n in range(20)))
    assert [ran.exit_code for ran in rans] == [0] * 20
