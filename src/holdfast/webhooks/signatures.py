"""Secrets and signatures of webhooks, as the Standard Webhooks specification defines them: `whsec_`
and base64, and an HMAC-SHA256 over id, time and body. Pure but for the randomness of new secrets.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Iterable

from ..environment import current
from ..errors import InvalidValue

PREFIX = "whsec_"
LEAST, MOST, USUAL = 24, 64, 32  # bytes of a secret


def new_secret() -> str:
    """Return a new random secret.

    See [webhooks](../webhooks.md).
    """
    return PREFIX + base64.b64encode(current().token_bytes(USUAL)).decode()


def key_of(secret: str) -> bytes:
    """Return the bytes of a secret. Raises `InvalidValue`, which does not contain the secret."""
    try:
        key = base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    except (binascii.Error, ValueError, AttributeError):
        key = b""
    if (
        not isinstance(secret, str)
        or not secret.startswith(PREFIX)
        or not LEAST <= len(key) <= MOST
    ):
        raise InvalidValue(
            field="secret",
            problem=f"must be {PREFIX} and the base64 form of {LEAST} to {MOST} bytes",
            remedy="omit it to get a new one",
        )
    return key


def signature(secrets: Iterable[str], id: str, timestamp: int, body: bytes) -> str:
    """Return the value of the header `webhook-signature`: one signature for each secret.

    See [webhooks](../webhooks.md).
    """
    signed = f"{id}.{timestamp}.".encode() + body
    made = (hmac.new(key_of(secret), signed, hashlib.sha256).digest() for secret in secrets)
    return " ".join(f"v1,{base64.b64encode(one).decode()}" for one in made)


def headers(secrets: Iterable[str], id: str, timestamp: int, body: bytes) -> dict[str, str]:
    """Return the headers of a delivery; `timestamp` is in seconds."""
    return {
        "content-type": "application/json",
        "user-agent": "holdfast-webhooks",
        "webhook-id": id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": signature(secrets, id, timestamp, body),
    }
