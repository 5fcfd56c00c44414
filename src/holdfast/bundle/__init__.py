"""Exports, imports and replays bundles. A bundle is one session in a file that can be shared,
copied, moved or replayed.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ..values.records import Imported
from .archive import Bundle, WrittenBundle
from .check import validate_bundle
from .format import BundleLimits, bundle_schema
from .read import import_bundle
from .redaction.manifest import Mode, Redaction
from .redaction.review import Review, Reviewed
from .redaction.scrub import ScrubConfig
from .write import export_bundle, review_bundle

if TYPE_CHECKING:
    from .differences import BundleDiff, diff
    from .recorded import Divergence, Replayed, replay
    from .unseal import unseal_session

# Imported at first use: a replay needs the whole harness.
_LATER = {
    "BundleDiff": ".differences",
    "Divergence": ".recorded",
    "Replayed": ".recorded",
    "diff": ".differences",
    "replay": ".recorded",
    "unseal_session": ".unseal",
}

__all__ = [
    "Bundle",
    "BundleDiff",
    "BundleLimits",
    "Divergence",
    "Imported",
    "Mode",
    "Redaction",
    "Replayed",
    "Review",
    "Reviewed",
    "ScrubConfig",
    "WrittenBundle",
    "bundle_schema",
    "diff",
    "export_bundle",
    "import_bundle",
    "replay",
    "review_bundle",
    "unseal_session",
    "validate_bundle",
]


def __dir__() -> list[str]:
    return sorted(__all__)


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_LATER[name], __name__), name)
