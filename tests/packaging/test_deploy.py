"""The steps of `deploy/`, run as plain shell: two servers on one PostgreSQL, one of which is
killed; and the files for containers, which run the same steps."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
import yaml  # type: ignore[import-untyped]

from tests import servers
from tests.servers.process import free_port

from .wheels import ROOT, build, sources

DEPLOY = ROOT / "deploy"
STEPS = DEPLOY / "steps"
SECRET = "a secret of sixteen letters or more"


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """The folder of programs that `install.sh` made; what they stand on is that of the tests."""
    build(sources(tmp_path / "source"), tmp_path / "dist")
    home = tmp_path / "home"
    quick = {**os.environ, "PIP_NO_DEPS": "1", "PIP_NO_INDEX": "1"}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    command = ["sh", str(STEPS / "install.sh"), str(tmp_path / "dist"), str(home)]
    subprocess.run(command, check=True, env={**quick, "PATH": path})
    (packages,) = home.glob("lib/python*/site-packages")
    (packages / "tests.pth").write_text(os.path.dirname(os.path.dirname(httpx.__file__)) + "\n")
    return home / "bin"


@contextmanager
def serving(environment: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    command = ["sh", str(STEPS / "serve.sh")]
    with subprocess.Popen(command, cwd=DEPLOY / "app", env=environment) as process:
        try:
            while not healthy(environment):
                assert process.poll() is None
            yield process
        finally:
            process.kill()


def healthy(environment: dict[str, str]) -> bool:
    command = ["sh", str(STEPS / "healthy.sh")]
    return (
        subprocess.run(command, env=environment, check=False, stderr=subprocess.DEVNULL).returncode
        == 0
    )


@pytest.mark.server
def test_two_servers_share_a_database_and_one_goes_on_alone(programs: Path, tmp_path: Path) -> None:
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    url = servers.url("postgres", tmp_path)
    shared = {"DATABASE_URL": url, "HOLDFAST_SECRET": SECRET, "HOST": "127.0.0.1", "PATH": path}
    both = [{**os.environ, **shared, "PORT": str(free_port())} for _ in range(2)]
    assert not healthy(both[0])
    with ExitStack() as stack:
        first, second = (stack.enter_context(serving(one)) for one in both)
        assert all(map(healthy, both))
        key = {"authorization": f"Bearer {SECRET}"}
        urls = [f"http://127.0.0.1:{one['PORT']}/v1/sessions/customer-42" for one in both]
        with httpx.Client(headers=key, timeout=30) as http:
            assert http.put(urls[0]).status_code in (200, 201)
            message = {"content": "hello"}
            assert http.post(f"{urls[0]}/messages?wait=true", json=message).status_code == 200
            first.kill()
            first.wait()
            assert not healthy(both[0])
            said = http.get(f"{urls[1]}/transcript").json()["items"]
        assert [one["role"] for one in said] == ["user", "assistant"]
        second.send_signal(signal.SIGTERM)
        assert second.wait(60) == 0


def test_the_image_runs_the_steps_that_are_tested() -> None:
    lines = (DEPLOY / "Containerfile").read_text().splitlines()
    copied = [w for line in lines if line.startswith("COPY ") for w in line.split()[1:-1]]
    named = [word for word in copied if word.startswith("deploy/")]
    assert named
    assert all((ROOT / word).exists() for word in named)
    steps = {path.name for path in STEPS.iterdir()}
    assert steps == {"install.sh", "serve.sh", "healthy.sh"}
    assert all(any(step in line for line in lines) for step in steps)
    assert any(line.startswith("HEALTHCHECK ") and "healthy.sh" in line for line in lines)
    assert "USER holdfast" in lines


def test_the_compose_file_starts_the_image_after_its_database() -> None:
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    server, postgres = services["server"], services["postgres"]
    assert (DEPLOY / server["build"]["context"] / server["build"]["dockerfile"]).exists()
    assert server["depends_on"] == {"postgres": {"condition": "service_healthy"}}
    assert "healthcheck" in postgres
    database = urlsplit(server["environment"]["DATABASE_URL"])
    assert database.hostname == "postgres"
    assert database.path == f"/{postgres['environment']['POSTGRES_DB']}"
    assert database.username == postgres["environment"]["POSTGRES_USER"]
    assert "HOLDFAST_SECRET" in server["environment"]
