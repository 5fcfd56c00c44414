"""The data keys of a tenant, and encryption with them.

A data key is stored as a claim of a reserved session. The claim contains the name of the master key
that encrypts the data key, the id of the data key, the name of the master key it was created under,
and the encrypted data key. Claims are durable, shared by all processes, and can be replaced one by
one, so a tenant's keys can be re-encrypted while the store is in use. The list of tenants that have
keys is stored in the same way.

Every session has its own key, derived from a data key, so that no two sessions share a nonce.
Encrypted data is bound to the location it was written to.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import os
import re
from collections import OrderedDict
from typing import Any, NamedTuple

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from ...errors import KeyMissing
from .keys import KEY_BYTES, Master

CLAIM = "vault"
NONCE = 12
ID = 16  # characters of a data key's id
TIE = 16  # bytes of a binding to a number
TAG = 24  # last characters of a box, which contain its whole tag
OVERHEAD = ID + NONCE + 16  # bytes that `encrypt_bytes` adds
SESSIONS = 4_096  # sessions of a tenant whose keys are cached

PLAIN = "is not encrypted, as everything in this store must be: it was written without the vault"
ALTERED = "is not what was encrypted for this place: it was altered or moved"
GONE = (
    "is encrypted with a data key that the store does not have: it was altered, or the key is lost"
)
NEWER = "was encrypted by a newer version: upgrade this program"

_ID = re.compile(f"[0-9a-f]{{{ID}}}")
_encode = msgspec.json.Encoder().encode


class Unsealed(Exception):
    """The data was not encrypted for this location. The message gives the reason."""

    def __init__(self, why: str = ALTERED) -> None:
        super().__init__(why)
        self.why = why


class UnknownKey(Unsealed):
    """The data is encrypted with a key that did not exist when the keys were read."""

    def __init__(self, id: str) -> None:
        super().__init__(GONE)
        self.id = id


class DataKey(NamedTuple):
    """A key that encrypts data. `made` is the first master key of the vault when the key was
    created, `master` is the master key that encrypts it, and `claim` is its stored form."""

    id: str
    secret: bytes
    made: str
    master: str
    claim: str

    def __repr__(self) -> str:
        return f"DataKey(id={self.id!r}, made={self.made!r}, master={self.master!r})"


class Claim(NamedTuple):
    """The stored form of a data key: its id, and the encrypted key."""

    name: str
    master: str
    id: str
    made: str
    sealed: bytes

    @classmethod
    def parse(cls, name: str) -> Claim | None:
        """Parse a claim. Returns None if the claim is not a data key."""
        try:
            what, master, id, made, text = name.split(":")
            sealed = base64.urlsafe_b64decode(text)
        except (ValueError, binascii.Error):
            return None
        return cls(name, master, id, made, sealed) if what == CLAIM and _ID.fullmatch(id) else None


class SessionCiphers(NamedTuple):
    """The ciphers of one session, derived from a data key: `cipher` encrypts data, and `tie` binds
    data to event numbers and times."""

    cipher: AESGCM
    tie: bytes


Ciphers = OrderedDict[tuple[str, str], SessionCiphers]


class Ring:
    """The data keys of one tenant that the vault can decrypt. Immutable. `current` is the key for
    encryption. `locked` maps the ids of keys that cannot be decrypted to the names of their master
    keys. If `sure` is true, the keys were just read, so a key that is not in the ring does not
    exist."""

    def __init__(
        self,
        tenant: str,
        keys: dict[str, DataKey],
        *,
        current: DataKey | None = None,
        locked: dict[str, str] | None = None,
        sure: bool = False,
        ciphers: Ciphers | None = None,
    ) -> None:
        self.tenant = tenant
        self.keys = keys
        self.current = current
        self.locked = locked or {}
        self._sure = sure
        self._ciphers: Ciphers = OrderedDict() if ciphers is None else ciphers

    def surely(self) -> Ring:
        """Return the same ring with `sure` set, after the keys were read again."""
        return Ring(
            self.tenant,
            self.keys,
            current=self.current,
            locked=self.locked,
            sure=True,
            ciphers=self._ciphers,
        )

    @property
    def empty(self) -> bool:
        """Whether the tenant has no data keys, so that none of its data was ever encrypted."""
        return not (self.keys or self.locked)

    def encrypt(self, session: str, place: tuple[Any, ...], data: bytes, more: bytes = b"") -> str:
        """Encrypt data to text. It can be decrypted only with the same session, place and
        `more`."""
        id, sealed = self._sealed(session, place, data, more)
        return f"{id}:{base64.b64encode(sealed).decode()}"

    def encrypt_bytes(self, session: str, place: tuple[Any, ...], data: bytes) -> bytes:
        """Encrypt data to bytes. They can be decrypted only with the same session and place."""
        id, sealed = self._sealed(session, place, data, b"")
        return id.encode() + sealed

    def _sealed(
        self, session: str, place: tuple[Any, ...], data: bytes, more: bytes
    ) -> tuple[str, bytes]:
        key = self.current
        assert key is not None
        nonce = os.urandom(NONCE)
        cipher = self._of(key, session).cipher
        return key.id, nonce + cipher.encrypt(nonce, data, self._bound(session, place, more))

    def decrypt(self, session: str, place: tuple[Any, ...], text: str, more: bytes = b"") -> bytes:
        """Decrypt the output of `encrypt`. Raises `Unsealed` if it was not encrypted for this
        location."""
        id, sealed = text[:ID], text[ID + 1 :]
        if text[ID : ID + 1] != ":":
            raise Unsealed
        try:
            data = base64.b64decode(sealed, validate=True)
        except (binascii.Error, ValueError) as error:
            raise Unsealed from error
        return self._opened(id, session, place, data, more)

    def decrypt_bytes(self, session: str, place: tuple[Any, ...], data: bytes) -> bytes:
        """Decrypt the output of `encrypt_bytes`. Raises `Unsealed` if it was not encrypted for this
        location."""
        id = data[:ID].decode("ascii", "replace")
        return self._opened(id, session, place, data[ID:], b"")

    def _opened(
        self, id: str, session: str, place: tuple[Any, ...], data: bytes, more: bytes
    ) -> bytes:
        key = self.keys.get(id)
        if key is None:
            raise self._unknown(id)
        try:
            return self._of(key, session).cipher.decrypt(
                data[:NONCE], data[NONCE:], self._bound(session, place, more)
            )
        except (InvalidTag, ValueError) as error:
            raise Unsealed from error

    def tie(self, session: str, box: str, number: int, at: int) -> str:
        """Return a value that binds the output of `encrypt`, and thus its content, to a number and
        a time."""
        key = self.keys.get(box[:ID])
        if key is None:
            raise self._unknown(box[:ID])
        # A box ends with its tag, which depends on each of its bytes.
        said = _encode((number, at, box[ID : ID + 24], box[-TAG:]))
        tie = hmac.digest(self._of(key, session).tie, said, "sha256")
        return base64.b64encode(tie[:TIE]).decode()

    def _unknown(self, id: str) -> Exception:
        if id in self.locked:
            return locked(self.tenant, self.locked[id])
        if not _ID.fullmatch(id):
            return Unsealed()
        return Unsealed(GONE) if self._sure else UnknownKey(id)

    def _bound(self, session: str, place: tuple[Any, ...], more: bytes) -> bytes:
        return _encode(("holdfast", 1, self.tenant, session, *place)) + b"\n" + more

    def _of(self, key: DataKey, session: str) -> SessionCiphers:
        known = (key.id, session)
        keys = self._ciphers.get(known)
        if keys is None:
            secret = _derived(key.secret, self.tenant, session)
            tie = _derived(key.secret, self.tenant, session, "tie")
            keys = self._ciphers[known] = SessionCiphers(AESGCM(secret), tie)
            if len(self._ciphers) > SESSIONS:
                self._ciphers.popitem(last=False)
        return keys


def locked(tenant: str, master: str) -> KeyMissing:
    """Return the error for data encrypted with a master key that the vault does not have."""
    problem = (
        f"the data is encrypted with master key {master!r}, which is not in the vault: append "
        "it to the vault"
    )
    return KeyMissing(problem=problem, tenant=tenant, key=master)


def new_data_key(master: Master, tenant: str) -> DataKey:
    """Create a data key for a tenant, with its stored form."""
    key = DataKey(os.urandom(ID // 2).hex(), os.urandom(KEY_BYTES), master.name, master.name, "")
    return key._replace(claim=claim_of(master, tenant, key))


def claim_of(master: Master, tenant: str, key: DataKey) -> str:
    """Encrypt a data key with this master key, and return its stored form."""
    nonce = os.urandom(NONCE)
    bound = _bound_key(master.name, tenant, key.id, key.made)
    cipher = AESGCM(_derived(master.secret, tenant, ""))
    sealed = nonce + cipher.encrypt(nonce, key.secret, bound)
    text = base64.urlsafe_b64encode(sealed).decode()
    return f"{CLAIM}:{master.name}:{key.id}:{key.made}:{text}"


def data_key(master: Master, tenant: str, claim: Claim) -> DataKey | None:
    """Decrypt the data key of a claim. Returns None if this master key cannot decrypt it."""
    try:
        secret = AESGCM(_derived(master.secret, tenant, "")).decrypt(
            claim.sealed[:NONCE],
            claim.sealed[NONCE:],
            _bound_key(master.name, tenant, claim.id, claim.made),
        )
    except (InvalidTag, ValueError):
        return None
    return DataKey(claim.id, secret, claim.made, claim.master, claim.name)


def _bound_key(*names: str) -> bytes:
    return _encode(("holdfast", 1, "key", *names))


def _derived(secret: bytes, *names: str) -> bytes:
    """Derive a key for one session of a tenant from a data key."""
    info = _encode(("holdfast", 1, *names))
    return HKDF(algorithm=SHA256(), length=KEY_BYTES, salt=None, info=info).derive(secret)
