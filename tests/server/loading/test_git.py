"""Repositories that clients name: only those that are allowed, and none that costs more than it
may."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import InvalidValue
from holdfast.server.loaders import AgentFiles, GitLoader, InlineLoader, LocalLoader, fetch

from .githttp import MANIFEST, blob, branching, commit, git, inflating, repository, served

ROOT = Path(__file__).parents[3]
ALLOWED = "https://git.example/agents/"


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where temporary files are; none is left."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield folder
    assert os.listdir(folder) == []


@pytest.mark.parametrize(
    "url",
    [
        "https://git.example/agents/%2e%2e/private/secret",
        "https://git.example/agents/%2E%2E%2Fprivate",
        "https://git.example/agents/..;/private",
        "https://git.example/agents/../private/secret",
        "https://git.example/agents/./x",
        "https://git.example/agents//x",
        "https://git.example//agents/x",
        "https://git.example/agents/x\\..\\..\\private",
        "https://git.example/agents/x?service=y",
        "https://git.example/agents/x#y",
        "https://git.example/agents/x y",
        "https://git.example/agents/x\n",
        "https://ann@git.example/agents/x",
        "https://git.example@evil.example/agents/x",
        "https://git.example:444/agents/x",
        "https://git.example.evil.example/agents/x",
        "https://git.example./agents/x",
        "https://git.example/agents-private/x",
        "https://git.example/Agents/x",
        "https://git.example/",
        "https:///agents/x",
        "http://git.example/agents/x",
        "ssh://git.example/agents/x",
        "git.example:agents/x",
        "ext::sh -c whoami",
        "ext::https://git.example/agents/x",
        "file:///agents/x",
        "/agents/x",
        "agents/x",
        "--upload-pack=x",
    ],
)
def test_an_address_that_leads_elsewhere_is_refused(url: str) -> None:
    with pytest.raises(InvalidValue) as refused:
        GitLoader(ALLOWED).check({"url": url})
    assert refused.value.field == "url"


@pytest.mark.parametrize(
    "url",
    [
        "https://git.example/agents/support",
        "HTTPS://Git.Example/agents/support.git",
        "https://git.example:443/agents/team/support/",
    ],
)
@pytest.mark.parametrize("allowed", [ALLOWED, "https://GIT.example:443/agents"])
def test_an_address_is_allowed_however_its_host_is_written(url: str, allowed: str) -> None:
    GitLoader(allowed).check({"url": url})


@pytest.mark.parametrize("allowed", ["agents/", "git.example:x", "ext::sh", "https://a b/", ""])
def test_what_is_no_address_cannot_be_allowed(allowed: str) -> None:
    with pytest.raises(InvalidValue) as refused:
        GitLoader(allowed)
    assert refused.value.field == "allowed"


async def test_a_repository_is_read_over_http_and_no_other(tmp_path: Path, temporary: Path) -> None:
    repository(tmp_path / "root/agents/support")
    repository(tmp_path / "root/private/secret")
    redirects = {"/agents/moved": "/private/secret"}
    with served(tmp_path / "root", redirects) as here:
        loader = GitLoader(f"{here.url}/agents/")
        loaded, files = await fetch(loader, {"url": f"{here.url}/agents/support", "ref": "main"})
        assert (loaded.identity.name, dict(files)) == ("Support", {"agent.toml": MANIFEST})
        for url in (f"{here.url}/agents/%2e%2e/private/secret", f"{here.url}/agents/moved"):
            with pytest.raises(InvalidValue):
                await fetch(loader, {"url": url})
        assert not [path for path in here.asked if "private" in path]


async def test_only_branches_and_tags_are_loaded(tmp_path: Path, temporary: Path) -> None:
    """Not what others have proposed: anybody can have a commit put under refs/pull."""
    folder = repository(tmp_path / "root")
    made = commit(folder, {})
    git(folder, "update-ref", "refs/pull/1/head", made)
    git(folder, "tag", "v1", made)
    loader = GitLoader(str(tmp_path))
    for ref in ("pull/1/head", "refs/pull/1/head", "refs/heads/main", made, "HEAD"):
        with pytest.raises(InvalidValue):
            await fetch(loader, {"url": str(folder), "ref": ref})
    loaded, _ = await fetch(loader, {"url": str(folder), "ref": "v1"})
    assert loaded.identity.sha == made


async def test_a_repository_runs_nothing_and_brings_only_files(
    tmp_path: Path, temporary: Path
) -> None:
    folder = repository(tmp_path / "root")
    entries = {name: f"100644 blob {blob(folder, data)}" for name, data in TRAPS.items()}
    entries["run.sh"] = f"100755 blob {blob(folder, b'echo')}"
    entries["link"] = f"120000 blob {blob(folder, b'/etc/passwd')}"
    entries["module"] = f"160000 commit {git(folder, 'rev-parse', 'main')}"
    commit(folder, entries)
    _, files = await fetch(GitLoader(str(tmp_path)), {"url": str(folder)})
    assert sorted(files) == sorted(["agent.toml", "run.sh", *TRAPS])
    assert files["lfs.bin"] == TRAPS["lfs.bin"]


TRAPS = {
    ".gitattributes": b"*.bin filter=lfs diff=lfs merge=lfs -text\n",
    ".gitmodules": b'[submodule "module"]\n\tpath = module\n\turl = ext::sh -c "touch /tmp/x"\n',
    "lfs.bin": b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n",
}


HUGE = 256 << 20  # more than any process may take to find out


@pytest.fixture(scope="module")
def bomb(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small repository with a huge file."""
    return inflating(tmp_path_factory.mktemp("served") / "agents/bomb", HUGE)


@pytest.mark.parametrize("over", ["file", "http"])
def test_a_small_repository_with_a_huge_file_costs_little(
    tmp_path: Path, over: str, bomb: Path
) -> None:
    (tmp_path / "temporary").mkdir()
    with served(bomb.parents[1]) as here:
        url = f"{here.url}/agents/bomb" if over == "http" else f"file://{bomb}"
        problem, mine, largest = measured(tmp_path, "git", url)
    assert "more than 2000 files, or more than 64 MiB" in problem
    assert (mine < 200, largest < 200) == (True, True), (mine, largest)
    assert os.listdir(tmp_path / "temporary") == []


def test_a_huge_file_in_a_folder_of_the_servers_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "agent").mkdir()
    (tmp_path / "temporary").mkdir()
    (tmp_path / "agent/agent.toml").write_bytes(MANIFEST)
    with (tmp_path / "agent/zeros.bin").open("wb") as file:
        file.truncate(HUGE)
    problem, mine, _ = measured(tmp_path, "local", str(tmp_path))
    assert "more than 2000 files, or more than 64 MiB" in problem
    assert mine < 200


def measured(tmp_path: Path, kind: str, where: str) -> tuple[str, int, int]:
    """What was refused, and how many MiB of memory that took."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "tests.server.loading.measured", kind, where],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(tmp_path / "temporary")},
        check=True,
        capture_output=True,
        text=True,
    )
    problem, mine, largest = json.loads(done.stdout)
    return problem, mine, largest


async def test_a_small_repository_with_folders_without_end_is_refused(
    tmp_path: Path, temporary: Path
) -> None:
    folder = branching(tmp_path / "root", levels=12, width=10)
    with pytest.raises(InvalidValue, match="more than 10000 files and folders"):
        await fetch(GitLoader(str(tmp_path)), {"url": str(folder)})


async def test_a_repository_that_is_too_large_is_given_up(
    tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = repository(tmp_path / "root")
    commit(folder, {"noise": f"100644 blob {blob(folder, os.urandom(4 << 20))}"})
    loader, source = GitLoader(str(tmp_path)), {"url": str(folder)}
    _, files = await fetch(loader, source)
    assert len(files["noise"]) == 4 << 20
    monkeypatch.setattr("holdfast.server.uploads.git.DISK", 2 << 20)
    with pytest.raises(InvalidValue, match="is larger than 2 MiB"):
        await fetch(loader, source)


class Own:
    """A loader of a program's own, which gives what it is asked for."""

    name = "own"

    def check(self, source: Any) -> None:
        pass

    async def fetch(self, source: Any) -> AgentFiles:
        return AgentFiles({"agent.toml": MANIFEST, **source})


@pytest.mark.parametrize(
    "source",
    [{"a/../b": b""}, {"..": b""}, {"a\\b": b""}, {"big": bytes(65 << 20)}],
    ids=["up", "above", "backslash", "big"],
)
async def test_a_loader_of_ones_own_is_held_to_the_same(source: dict[str, bytes]) -> None:
    with pytest.raises(InvalidValue):
        await fetch(Own(), source)


def test_a_request_brings_no_more_files_than_may_be() -> None:
    files = [{"path": f"f{n}", "content": ""} for n in range(2_001)]
    with pytest.raises(InvalidValue) as refused:
        InlineLoader().check({"manifest": {"name": "a"}, "files": files})
    assert (refused.value.field, refused.value.limit) == ("files", 2_000)


async def test_a_deep_folder_of_the_servers_is_refused(tmp_path: Path) -> None:
    (tmp_path / "agent" / "/".join("d" * 150)).mkdir(parents=True)
    with pytest.raises(InvalidValue, match="at most 100"):
        await fetch(LocalLoader(tmp_path), {"path": "agent"})
