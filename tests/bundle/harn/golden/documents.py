"""What the golden documents are made of; nothing in them depends on the day or the release."""

from __future__ import annotations

from pathlib import Path

from holdfast.bundle import Mode, ScrubConfig, export_bundle
from holdfast.bundle.harn import record_bundle, write_harn
from tests.bundle.harn.records import SECRET, record
from tests.bundle.harn.session import SCOPE, store_with_session

HERE = Path(__file__).parent
MODES: tuple[Mode, ...] = ("local", "sanitized", "replay_only")
SCRUB = ScrubConfig(detector=False)  # another release of it may find more


async def documents() -> dict[str, bytes]:
    """Each document by the name of its file."""
    store = await store_with_session(secret=SECRET, closed=True)
    local = await export_bundle((store, SCOPE), "local")
    found: dict[str, bytes] = {}
    for mode in MODES:
        lifted, _ = record_bundle(
            record(),
            mode,
            scrub=SCRUB,
            bundle_id="bundle_golden",
            created_at="2026-03-01T10:02:00.000Z",
            version="1",
        )
        found[f"record-{mode}.json"] = lifted.encode()
        written, _ = write_harn(local, mode, scrub=SCRUB)
        found[f"session-{mode}.json"] = written.encode()
    return found
