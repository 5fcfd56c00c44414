"""Names of blobs, and checks that the bytes of a blob match its hash. Pure functions."""

from __future__ import annotations

import hashlib
import re

from ..errors import BlobNotFound
from ..log.events import Scope
from .port import BlobRef

_SHA256 = re.compile("[0-9a-f]{64}")


def blob_name(data: bytes, sha256: str | None = None) -> str:
    """Return the name of a blob: `sha256` if it is passed, otherwise the SHA-256 of the bytes."""
    return hashlib.sha256(data).hexdigest() if sha256 is None else sha256


def is_blob(data: bytes, sha256: str) -> bool:
    """Return whether `sha256` is the SHA-256 of `data`."""
    return hashlib.sha256(data).hexdigest() == sha256


def found_blob(scope: Scope, ref: BlobRef, data: bytes | None, *, checked: bool) -> bytes:
    """Return `data`, the stored bytes of a blob. Raises `BlobNotFound` if it is None or, with
    `checked`, if it does not match the hash."""
    if data is None or (checked and not is_blob(data, ref.sha256)):
        raise BlobNotFound(tenant=scope.tenant, session=scope.session, sha256=ref.sha256)
    return data


def is_sha256(text: str) -> bool:
    """Return whether a text is a valid blob name: 64 hexadecimal digits."""
    return isinstance(text, str) and _SHA256.fullmatch(text) is not None
