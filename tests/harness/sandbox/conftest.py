"""A local sandbox, and a Docker of our own that notes what it is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.events import key
from holdfast.harness.sandbox import LocalSandbox, Place
from holdfast.harness.sandbox.local import LocalPlace

from .fake import FakeDocker


@pytest.fixture
async def place(tmp_path: Path) -> LocalPlace:
    sandbox = LocalSandbox(tmp_path / "sessions", timeout=100)
    return await sandbox.open(key("s"), agent="a", resources=None)


@pytest.fixture
def root(place: Place) -> Path:
    return Path(place.folder)


@pytest.fixture
def docker(tmp_path: Path) -> FakeDocker:
    return FakeDocker(tmp_path / "docker")
