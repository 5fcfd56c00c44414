"""The client's side of a login to PostgreSQL: in clear, or by SCRAM-SHA-256 (RFC 5802, 7677)."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
import struct

OK, CLEAR, SASL, SASL_CONTINUE, SASL_FINAL = 0, 3, 10, 11, 12


class Client:
    """Answers the server's authentication messages, one after the other."""

    def __init__(self, password: str) -> None:
        self._password = password
        self._first = f"n=,r={secrets.token_urlsafe(18)}"

    def answer(self, body: bytes) -> bytes | None:
        """What to send back; None when the server wants nothing more."""
        (kind,) = struct.unpack_from("!I", body)
        if kind in (OK, SASL_FINAL):
            return None
        if kind == CLEAR:
            return self._password.encode() + b"\0"
        if kind == SASL:
            opening = f"n,,{self._first}".encode()
            return b"SCRAM-SHA-256\0" + struct.pack("!I", len(opening)) + opening
        if kind == SASL_CONTINUE:
            return self._proof(body[4:].decode())
        raise NotImplementedError(f"authentication method {kind}")

    def _proof(self, challenge: str) -> bytes:
        said = dict(part.split("=", 1) for part in challenge.split(","))
        salted = hashlib.pbkdf2_hmac(
            "sha256", self._password.encode(), base64.b64decode(said["s"]), int(said["i"])
        )
        key = hmac.digest(salted, b"Client Key", "sha256")
        closing = f"c=biws,r={said['r']}"
        signed = f"{self._first},{challenge},{closing}".encode()
        signature = hmac.digest(hashlib.sha256(key).digest(), signed, "sha256")
        proof = bytes(a ^ b for a, b in zip(key, signature, strict=True))
        return f"{closing},p={base64.b64encode(proof).decode()}".encode()
