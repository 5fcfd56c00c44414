"""The keys of a vault: which are taken, what is said of those that are not, what opens and what
does not, and the names that nobody may use."""

from __future__ import annotations

import base64
import os
import pickle
import traceback
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw

import holdfast
from holdfast import InvalidValue, KeyMissing, Lease, NewEvent, Scope, Snapshot, Vault, key
from holdfast.events import Key
from holdfast.stores.vault.store import VaultStore
from holdfast.testing.samples import given, past

from .hands import KINDS, Hands, all_of, hands_on, outcome

pytestmark = pytest.mark.parity("user-demand", 64)

RESERVED = "holdfast.vault"


@pytest.fixture(params=KINDS)
async def hands(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Hands, None]:
    async with hands_on(request.param, tmp_path) as hands:
        yield hands


@pytest.fixture
async def store(tmp_path: Path) -> AsyncGenerator[VaultStore, None]:
    async with hands_on("sqlite", tmp_path) as hands, hands.behind() as store:
        yield store


def text(size: int = 32) -> str:
    return base64.b64encode(os.urandom(size)).decode()


def note(n: object) -> NewEvent:
    return NewEvent.of("note.made", {"n": n})


# Which keys are taken

GOOD = Vault.new_key("good")
REFUSED: dict[str, tuple[Any, str, str]] = {
    "no list": (GOOD, "keys", "not a list"),
    "bytes": (GOOD.encode(), "keys", "not a list"),
    "none": ([], "keys", "not a list"),
    "nothing": (None, "keys", "not a list"),
    "a set": ({GOOD}, "keys", "not a list"),
    "no text": ([GOOD, 5], "keys[1]", "NAME:BASE64"),
    "no name": ([f":{text()}"], "keys[0]", "a name of"),
    "a long name": ([f"{'n' * 65}:{text()}"], "keys[0]", "a name of"),
    "a name of other letters": ([f"né:{text()}"], "keys[0]", "a name of"),
    "a name with a line": ([f"n\n:{text()}"], "keys[0]", "a name of"),
    "too short": ([f"n:{text(16)}"], "keys[0]", "32 bytes"),
    "too long": ([f"n:{text(33)}"], "keys[0]", "32 bytes"),
    "no base64": ([f"n:{'§' * 44}"], "keys[0]", "32 bytes"),
    "blanks": ([f"n: {text()}"], "keys[0]", "32 bytes"),
    "hexadecimal": ([f"n:{os.urandom(32).hex()}"], "keys[0]", "32 bytes"),
    "zeros": ([f"n:{base64.b64encode(bytes(32)).decode()}"], "keys[0]", "random"),
    "two letters": ([f"n:{base64.b64encode(b'ab' * 16).decode()}"], "keys[0]", "random"),
    "one name twice": ([Vault.new_key("n"), GOOD, Vault.new_key("n")], "keys", "two keys"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_keys_that_cannot_be_used_are_refused_with_their_place_and_a_remedy(case: str) -> None:
    keys, field, problem = REFUSED[case]
    with pytest.raises(InvalidValue) as raised:
        Vault(keys)
    assert raised.value.field == field
    assert problem in raised.value.problem
    assert "NAME:BASE64" in raised.value.remedy
    with pytest.raises(InvalidValue) as raised:
        Vault([GOOD], tenants={"acme": keys})
    assert raised.value.field == f"tenants.acme{field.removeprefix('keys')}"


@pytest.mark.parametrize("tenants", [["acme"], "acme", 5], ids=str)
def test_tenants_that_are_no_mapping_are_refused_in_our_words(tenants: Any) -> None:
    with pytest.raises(InvalidValue):
        Vault([GOOD], tenants=tenants)


def secrets() -> dict[str, str]:
    """Keys as people mistype them: without a name, or in another spelling."""
    raw = os.urandom(32)
    return {
        "base64": base64.b64encode(raw).decode(),
        "base64 without its end": base64.b64encode(raw).decode().rstrip("="),
        "base64 for URLs": base64.urlsafe_b64encode(raw).decode().rstrip("="),
        "hexadecimal": raw.hex(),
        "named hexadecimal": f"n:{raw.hex()}",
        "named, short": f"n:{base64.b64encode(raw[:31]).decode()}",
        "passphrase": "correct-horse-battery-staple",
    }


@pytest.mark.parametrize("spelling", secrets())
def test_no_error_repeats_a_key(spelling: str, tmp_path: Path) -> None:
    key = secrets()[spelling]
    file = tmp_path / "vault.toml"
    file.write_text(f'keys = ["{key}"]')
    makes: list[Callable[[], Vault]] = [lambda: Vault([key]), lambda: Vault.load(file)]
    for make in makes:
        with pytest.raises(InvalidValue) as raised:
            make()
        said = "".join(traceback.format_exception(raised.value)) + repr(raised.value.fields)
        lines = [line for line in said.splitlines() if "Vault([key])" not in line]
        assert (key.partition(":")[2] or key) not in "\n".join(lines)


def test_a_vault_shows_names_and_no_key() -> None:
    own = Vault.new_key("own")
    vault = Vault([GOOD], tenants={"acme": [own]})
    shown = [repr(vault), str(vault), f"{vault}", repr(vars(vault)), repr(vault.masters("acme"))]
    for said in shown:
        for one in (GOOD, own):
            secret = one.partition(":")[2]
            assert secret not in said
            assert repr(base64.b64decode(secret)) not in said
    assert "good" in repr(vault)


def test_a_new_key_is_another_one_each_time_and_can_be_used() -> None:
    keys = {Vault.new_key("n") for _ in range(50)}
    assert len(keys) == 50
    for one in keys:
        Vault([one])
    with pytest.raises(InvalidValue):
        Vault.new_key("no name")


# Files

FILES: dict[str, str] = {
    "is not TOML": "keys = [",
    "must have only": f'keys = ["{GOOD}"]\nsecret = 1',
    "must have only `keys` and a table": f'keys = ["{GOOD}"]\ntenants = 5',
    "is not a list": "",
    "is not a list of keys": f'keys = "{GOOD}"',
    "larger than 1 MiB": f'keys = ["{GOOD}"]' + "#" * (1 << 20),
}


@pytest.mark.parametrize("problem", FILES)
async def test_a_file_that_is_no_vault_is_refused_before_anything_is_opened(
    problem: str, tmp_path: Path
) -> None:
    file = tmp_path / "vault.toml"
    file.write_text(FILES[problem])
    with pytest.raises(InvalidValue, match=problem) as raised:
        await holdfast.connect(f"sqlite:{tmp_path}/s.db?vault={file}")
    assert raised.value.field in ("vault", "keys")
    assert GOOD.partition(":")[2] not in str(raised.value)
    assert not (tmp_path / "s.db").exists()


@pytest.mark.parametrize("name", ["missing.toml", ".", "a\0b", "", "binary"], ids=repr)
def test_a_file_that_cannot_be_read_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidValue) as raised:
        Vault.load(tmp_path / name)
    assert raised.value.field == "vault"


async def test_a_vault_in_a_file_opens_what_the_same_keys_wrote(hands: Hands) -> None:
    first, own = Vault.new_key("first"), Vault.new_key("own")
    file = hands.folder / "the vault.toml"
    file.write_text(f'keys = ["{first}"]\n[tenants]\nacme = ["{own}"]\n')
    mark = "&" if "?" in hands.url else "?"
    url = f"{hands.url}{mark}vault={str(file).replace(' ', '%20')}"
    async with holdfast.connect(url) as store:
        for tenant in ("main", "acme"):
            await store.append(Key(tenant, "s", "main"), [note(tenant)], create=True)
        assert store.info().encrypted
        assert "vault.toml" not in store.info().location
    async with holdfast.connect(hands.url, vault=Vault([first], tenants={"acme": [own]})) as store:
        for tenant in ("main", "acme"):
            (event,) = await all_of(store, Key(tenant, "s", "main"))
            assert event.json() == {"n": tenant}
    with pytest.raises(InvalidValue):
        holdfast.connect(url, vault=Vault([first]))


# What opens and what does not


async def test_an_encrypted_store_does_not_open_without_its_vault(hands: Hands) -> None:
    async with holdfast.connect(hands.url) as plain:
        assert not plain.info().encrypted
    async with hands.behind() as store:
        await store.append(key("s"), [note(1)], create=True)
    with pytest.raises(InvalidValue, match="encrypted") as raised:
        await holdfast.connect(hands.url)
    assert raised.value.field == "vault"
    async with holdfast.connect(hands.url, vault=hands.vault) as again:
        assert [event.json() for event in await all_of(again, key("s"))] == [{"n": 1}]


async def test_a_tenant_in_clear_is_not_written_to_with_a_vault(hands: Hands) -> None:
    async with holdfast.connect(hands.url) as plain:
        await plain.append(key("s"), [note(1)], create=True)
        await plain.put_blob(Scope("main", "s"), b"in clear")
        lease = await plain.acquire(key("s"), "me")
    async with hands.behind() as store:
        for doing in (
            store.append(key("s"), [note(2)]),
            store.append(key("new"), [note(2)], create=True),
            store.fork(key("s"), "side", at=1, first=note(2)),
            store.restore(key("new"), given([past(1)])),
            store.put_blob(Scope("main", "s"), b"more"),
            store.put_draft(key("s"), "m", 0, "more", fence=lease),
        ):
            with pytest.raises(InvalidValue, match="not encrypted"):
                await doing
        await store.append(Key("other", "s", "main"), [note(1)], create=True)
    async with hands.under() as under:
        assert [event.json() for event in await all_of(under, key("s"))] == [{"n": 1}]


async def test_a_repair_with_a_vault_destroys_nothing_of_a_tenant_in_clear(hands: Hands) -> None:
    """Somebody named a vault in the URL of a store that never had one."""
    async with holdfast.connect(hands.url) as plain:
        await plain.append(key("s"), [note(1), note(2)], create=True)
    async with hands.behind() as store:
        for target in (None, Scope("main", "s"), key("s")):
            found = await outcome(_repaired(store, target))
            assert found in ("InvalidValue", False)
    async with holdfast.connect(hands.url) as plain:
        assert [event.json() for event in await all_of(plain, key("s"))] == [{"n": 1}, {"n": 2}]


async def _repaired(store: VaultStore, target: Scope | Key | None) -> bool:
    return any([damage.repaired async for damage in store.verify(target, repair=True)])


async def test_another_key_of_the_same_name_is_not_taken_for_it(hands: Hands) -> None:
    async with hands.behind() as store:
        await store.append(key("s"), [note(1)], create=True)
    for vault, name in (
        (Vault([Vault.new_key("first")]), "first"),
        (Vault([Vault.new_key("other")]), "first"),
    ):
        async with hands.behind(vault) as store:
            with pytest.raises(KeyMissing) as raised:
                await all_of(store, key("s"))
            assert (raised.value.key, raised.value.tenant) == (name, "main")
            assert name in str(raised.value)
            again = pickle.loads(pickle.dumps(raised.value))
            assert str(again) == str(raised.value)


# Names that nobody may use

LEASE = Lease(key=key("x"), log="x", token=1, owner="me", since=0, until=1, ttl=1)
SNAPSHOT = Snapshot(log="x", seq=1, version="v", state=Raw(b"{}"))
Write = Callable[[VaultStore, Key], Any]
WRITES: dict[str, Write] = {
    "append": lambda store, key: store.append(key, [note(1)], create=True),
    "fork": lambda store, key: store.fork(key, "side", at=1, first=note(1)),
    "restore": lambda store, key: store.restore(key, given([past(1)])),
    "delete": lambda store, key: store.delete(key),
    "delete all": lambda store, key: store.delete(key.scope),
    "claim": lambda store, key: store.claim(key.tenant, "x", key.scope),
    "unclaim": lambda store, key: store.unclaim(key.tenant, "x", key.scope),
    "put_blob": lambda store, key: store.put_blob(key.scope, b"x"),
    "put_draft": lambda store, key: store.put_draft(key, "m", 0, "x", fence=LEASE),
    "save_snapshot": lambda store, key: store.save_snapshot(key, SNAPSHOT, fence=LEASE),
}


@pytest.mark.parametrize("name", WRITES)
async def test_nothing_is_written_where_the_keys_are(store: VaultStore, name: str) -> None:
    await store.append(key("s"), [note(1)], create=True)
    before = await store.data_keys()
    for place in (key(RESERVED), Key(RESERVED, "s", "main"), Key(RESERVED, RESERVED, "main")):
        found = await outcome(WRITES[name](store, place))
        assert found in ("InvalidValue", "SessionNotFound")
    assert await store.data_keys() == before
    assert [(done.tenant, done.changed) for done in await store.reseal()] == [("main", 0)]


async def test_nobody_takes_a_data_key_away(store: VaultStore) -> None:
    await store.append(key("s"), [note(1)], create=True)
    for name in await store.inner.claims(Scope("main", RESERVED)):
        owner, keys = Scope("main", "s"), Scope("main", RESERVED)
        await outcome(store.claim("main", name, owner, instead_of=keys))
        await outcome(store.claim("main", name, owner))
        await outcome(store.unclaim("main", name, keys))
    assert len(await store.data_keys()) == 1
