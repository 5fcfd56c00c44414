"""Names of blobs, and the check of their bytes. Pure."""

from __future__ import annotations

import hashlib
import re

from ..errors import BlobNotFound
from ..log.events import Scope
from .port import BlobRef

_SHA256 = re.compile("[0-9a-f]{64}")


def blob_name(data: bytes, sha256: str | None = None) -> str:
    """Return the name of a blob: the given one, or the hash of its bytes."""
    return hashlib.sha256(data).hexdigest() if sha256 is None else sha256


def is_blob(data: bytes, sha256: str) -> bool:
    """Return whether these bytes have this hash."""
    return hashlib.sha256(data).hexdigest() == sha256


def found_blob(scope: Scope, ref: BlobRef, data: bytes | None, *, checked: bool) -> bytes:
    """Return the bytes of a blob. Raises an error if the blob does not exist or, with `checked`,
    does not match its hash."""
    if data is None or (checked and not is_blob(data, ref.sha256)):
        raise BlobNotFound(tenant=scope.tenant, session=scope.session, sha256=ref.sha256)
    return data


def is_sha256(text: str) -> bool:
    """Return whether a text is a valid blob name: 64 hexadecimal digits."""
    return isinstance(text, str) and _SHA256.fullmatch(text) is not None
