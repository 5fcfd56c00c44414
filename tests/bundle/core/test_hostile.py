"""Hostile bundles never crash or hang whoever reads them, take much memory, or write anything."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import InvalidBundle, import_bundle
from holdfast.events import KINDS
from holdfast.stores.memory import MemoryStore
from tests.copy.scene import content

from . import hostile
from .scene import OURS, signed, values, zipped

MOST = 160.0  # megabytes
ROOT = Path(__file__).parents[3]

EXPECTED = {
    "nothing": "truncated",
    "deep list": "too_deep",
    "deep and open": "too_deep",
    "deep objects": "too_deep",
    "deep inside": "too_deep",
    "many empty": "too_large",
    "many in metadata": "too_large",
    "many flat": "too_large",
    "brackets": "too_large",
    "one long text": "truncated",
    "escapes": "truncated",
    "large number": "not_json",
    "large exponent": "not_json",
    "half characters": "not_json",
    "too large": "too_large",
    "many numbers": "too_large",
    "many keys": "too_large",
    "some keys": "tampered",
    "many threads": "too_large",
    "many events": "bad_event,mismatch,tampered",
    "bomb": "too_large",
    "bomb in disguise": "truncated",
    "bomb as document": "too_large",
    "bomb as document in disguise": "truncated",
    "claim of 4 GB": "too_large",
    "a line without end": "mismatch,too_large",
    "many files": "too_many_parts",
    "claim of many files": "too_many_parts",
    "no directory": "truncated",
    "many parts": "too_many_parts",
    "wide text": "mismatch",
    "many values": "too_large",
    "deep event": "bad_event",
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, dict[str, bytes]]:
    return asyncio.run(hostile.victim(tmp_path_factory.mktemp("victim")))


@pytest.mark.parity("harn-bundle", 112)
def test_hostile_bundles_are_refused_within_little_memory(tmp_path: Path) -> None:
    (tmp_path / "bundles").mkdir()
    (tmp_path / "empty").mkdir()
    names = hostile.write(tmp_path / "bundles")
    assert names == list(EXPECTED)
    files = [str(tmp_path / "bundles" / str(n)) for n in range(len(names))]
    child = subprocess.run(
        [sys.executable, "-m", "tests.bundle.core.hostile", *files],
        cwd=tmp_path / "empty",
        env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path / "empty")},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (child.returncode, child.stderr) == (0, "")
    told = [json.loads(line) for line in child.stdout.splitlines()]
    assert dict(zip(names, [one["how"] for one in told], strict=True)) == EXPECTED
    assert max(one["peak"] for one in told) < MOST
    assert list((tmp_path / "empty").iterdir()) == []


async def met(source: bytes) -> None:
    """Whatever a bundle is: it is taken whole, or refused, and then nothing of it is there."""
    store = MemoryStore()
    try:
        done = await import_bundle(store, source, purpose="read")
    except InvalidBundle:
        assert await content(store, OURS) == await content(MemoryStore(), OURS)
    else:
        assert done.fresh


@given(
    st.booleans(),
    st.lists(st.tuples(st.integers(0, 1 << 30), st.binary(max_size=4), st.integers(0, 6))),
)
def test_bytes_that_are_changed_anywhere(
    made: tuple[bytes, dict[str, bytes]], archive: bool, changes: list[tuple[int, bytes, int]]
) -> None:
    data = bytearray(zipped([*made[1].items()]) if archive else made[0])
    for place, put, over in changes:
        at = place % (len(data) + 1)
        data[at : at + over] = put
    asyncio.run(met(bytes(data)))


lines = st.builds(
    lambda seq, kind, id, data: (
        json.dumps({"seq": seq, "at": seq, "id": id, "kind": kind, "data": data}).encode() + b"\n"
    ),
    st.integers(1, 3),
    st.sampled_from([*KINDS, "odd.kind"]),
    st.sampled_from(["a", "b", "c"]),
    values,
)
odd_lines = st.one_of(
    st.binary(max_size=20), values.map(lambda value: json.dumps(value).encode() + b"\n")
)
places = st.lists(st.integers(0, 40), min_size=1, max_size=6)


@given(st.lists(st.tuples(places, values), min_size=1, max_size=4), st.booleans())
def test_documents_with_other_values_anywhere(
    made: tuple[bytes, dict[str, bytes]], changes: list[tuple[list[int], Any]], sign: bool
) -> None:
    raw = json.loads(made[0])
    for way, value in changes:
        _put(raw, way, value)
    if sign and isinstance(raw, dict):
        try:
            raw["bundle_id"] = signed(raw)
        except (KeyError, TypeError, AttributeError):
            sign = False  # there is no document left to be signed
    asyncio.run(met(json.dumps(raw).encode()))


@given(st.lists(st.one_of(odd_lines, lines), max_size=6))
def test_threads_with_any_lines_and_the_right_hashes(
    made: tuple[bytes, dict[str, bytes]], told: list[bytes]
) -> None:
    asyncio.run(met(hostile.around(made[1], b"".join(told))))


def _put(value: Any, way: list[int], new: Any) -> None:
    """Put a value somewhere into another one."""
    for n, step in enumerate(way):
        keys = list(value) if isinstance(value, dict) else list(range(len(value)))
        if not keys:
            return
        key = keys[step % len(keys)]
        if n == len(way) - 1 or not isinstance(value[key], (dict, list)):
            value[key] = new
            return
        value = value[key]
