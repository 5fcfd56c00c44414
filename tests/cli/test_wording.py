"""Errors of the command line speak of its options, never of Python: whatever is refused, in text
and in JSON."""

from __future__ import annotations

import ast
import json
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast
from holdfast import NewEvent, Store, key
from holdfast.cli.error_report import REMEDIES

from .conftest import Cli, write

SOURCE = Path(holdfast.__file__).parent
# A call, an argument by name, a value of Python's, or a type of the library's.
PYTHON = re.compile(
    r"\b[a-z_]+=(?!FILE\b)['\"A-Z.\[{]|\b[a-z_]+= |\b[a-z_.]+\([^)]*\)|\b(?:True|False|None)\b"
    r"|\b(?:NewEvent|Harness|Vault)\b|\bpass an? (?:str|dict|list|int)\b"
)
LONG = "x" * 2_000

# Each is refused, in a store with a session `customer-42` that waits, and bundles of it.
REFUSED = """
show {long}
show customer-42 --thread=
show nobody
tail nobody
sessions --cursor bogus
sessions --user=
sessions --label=
sessions --surface= x
sessions --tenant=
sessions --store bogus
sessions --store zz:x
sessions --store sqlite:none.db
sessions --store {url}?x=1
sessions --store {url}?durability=x
sessions --store sqlite:sealed.db
pending --cursor x
approve nobody
approve customer-42 zzz
approve customer-43
answer customer-43 x
export customer-42 --purpose move
export customer-42 --purpose move --mode local --thread main --out x.zip
export customer-42 --upto -1 --out x.zip
export customer-42 --thread nope --out x.zip
export customer-42 --personal zzz --out x.zip
export customer-42 --out shared.zip
export nobody
import shared.zip --as a
import redacted.zip --as a
import empty.zip --as a
import local.zip
import local.zip --as a --tenant=
import none.zip
session touch nobody
session metadata customer-43 --set k={long}{long}{long}{long}{long}{long}{long}{long}{long}{long}
session surfaces customer-43 --attach= x
session ttl customer-43 0s
session reopen customer-43
session hold customer-43 --reason=
keys create x --scope zz
keys create x --label=
keys create x --tenant ~x
keys create {long}
keys rotate Ab3dEf6hIj9k
copy --to zz:y
copy --to sqlite:nowhere/t.db
copy --to {url} --move customer-43
chat x --model bogus
chat x --agent nowhere:agent
chat x --agent holdfast:nothing
chat customer-43
chat {long}
resume nobody --agent desk:agent
resume --agent desk:agent --model bogus
person erase= --reason x --yes
person erase ann --reason {long} --yes
verify nobody
verify --anchors none
anchors nobody
delete nobody --yes
delete customer-42 --thread no --yes
sweep --ttl 0s
bundle validate none
bundle replay local.zip --thread x
bundle replay local.zip --model bogus
bundle diff local.zip none
migrate --store sqlite:none.db
migrate --store postgresql://h/d?schema=A!
claude import nowhere
unseal nobody --reason x --yes
token
"""


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the first test keeps what it has made for the others."""
    return tmp_path_factory.mktemp("wording") / "place"


@pytest.fixture
def place(tmp_path: Path, url: str, cli: Cli, monkeypatch: pytest.MonkeyPatch, kept: Path) -> Path:
    """A folder with a store and bundles, in which the commands are run."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOLDFAST_STORE", url)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "desk", raising=False)
    if kept.exists():
        shutil.copytree(kept, tmp_path, dirs_exist_ok=True)
        return tmp_path
    agent = 'from holdfast import Agent\nagent = Agent("desk", instructions="Help.")\n'
    (tmp_path / "desk.py").write_text(agent)

    async def sample(store: Store) -> None:
        asked = {"id": "p1", "what": "approval", "title": "19.99"}
        events = [
            NewEvent.of("session.created", {"agent": "shop"}),
            NewEvent.of("message.received", {"text": "My password is hunter2hunter2."}),
            NewEvent.of("pending.opened", asked),
        ]
        await store.append(key("customer-42"), events, create=True)
        quiet = [events[0], NewEvent.of("desk.noted", {"text": "sk-ant-api03-" + "a1" * 40})]
        await store.append(key("customer-43"), quiet, create=True)
        await store.put_blob(key("customer-43").scope, b"a receipt")

    write(url, sample)
    exports = {
        "shared": ["customer-42"],
        "redacted": ["customer-43"],
        "empty": ["customer-43", "--mode", "replay-only"],
        "local": ["customer-43", "--mode", "local"],
    }
    for name, words in exports.items():
        assert cli("export", *words, "--out", f"{name}.zip").code == 0
    assert cli("vault", "new", "k").code == 0
    (tmp_path / "vault.toml").write_text(cli("vault", "new", "k").out)
    (tmp_path / "vault.toml").chmod(0o600)
    write(f"sqlite:{tmp_path}/sealed.db?vault={tmp_path}/vault.toml", sample)
    shutil.copytree(tmp_path, kept)
    return tmp_path


@pytest.mark.parametrize("words", [line for line in REFUSED.splitlines() if line])
def test_an_error_speaks_of_the_command_line(place: Path, url: str, cli: Cli, words: str) -> None:
    arguments = words.format(url=url, long=LONG).replace("erase=", "erase ").split(" ")
    ended = cli(*arguments)
    assert ended.code in (1, 2), ended.out
    told = ended.err or ended.out
    assert told
    assert not PYTHON.search(told.replace(LONG, "…")), told
    spoken = cli(*arguments, "--json")
    assert spoken.code == ended.code
    if spoken.err:
        message = json.loads(spoken.err)["message"]
        assert not PYTHON.search(message.replace(LONG, "…")), message


def test_a_bundle_that_cannot_go_on_is_told_with_options(place: Path, cli: Cli) -> None:
    said = cli("import", "redacted.zip", "--as", "a").err
    assert "--accept-redacted continues with the redacted content, --read-only imports" in said
    assert cli("import", "redacted.zip", "--as", "a", "--accept-redacted").code == 0
    assert cli("import", "redacted.zip", "--as", "b", "--read-only").code == 0
    said = cli("import", "shared.zip", "--as", "c").err
    assert "export it with --purpose copy or --purpose move" in said
    assert cli("export", "customer-42", "--purpose", "copy", "--out", "copy.zip").code == 0
    assert cli("import", "copy.zip", "--as", "c", "--accept-redacted").code == 0
    spoken = json.loads(cli("import", "shared.zip", "--as", "d", "--json").err)
    assert spoken["code"] == "not_continuable"
    assert "--purpose copy" in spoken["message"]
    assert spoken["fields"]["remedy"].startswith("export it with purpose=")  # as the library has it


def test_arguments_are_named_as_they_are_typed(place: Path, cli: Cli) -> None:
    for words, named in (
        (["show", LONG], "SESSION"),
        (["show", "customer-42", "--thread", LONG], "--thread"),
        (["keys", "create", "x", "--scope", "zz"], "--scope"),
        (["session", "hold", "customer-42", "--reason", ""], "--reason"),
        (["import", "local.zip", "--as", LONG], "--as"),
        (["person", "export", ""], "USER"),
        (["sessions", "--store", "zz:x"], "store URL"),
    ):
        assert cli(*words).err.startswith((f"error: {named} ", f"error: {named}: ")), words


# All that the library says


# Where a remedy that speaks of Python can be met by programs alone.
PROGRAMS = {
    "adapters/claude/provider.py": [
        "install Claude Code, or pass ClaudeProvider(…, options={'cli_path': …})"
    ],
    "adapters/openai/session.py": [
        "pass an int or None",
        "pass a list of the SDK's items, such as [{'role': 'user', 'content': 'Hello.'}]",
    ],
    "adapters/pydantic_ai/store.py": [
        "pass a list of ModelRequest and ModelResponse, such as result.new_messages()"
    ],
    "bundle/write.py": [
        "pass a list with at least one thread",
        "pass it only with purpose='move'",  # no verb takes `move_to`
    ],
    "log/codec.py": [
        "create it with NewEvent.of",
        "create it with holdfast.key()",
        "pass a list of NewEvent",
        "pass a str",
        "pass NewEvent values",
    ],
    "sync.py": ["pass a URL, or open it with connect(url, portal=True)"],
    "harness/host.py": ["pass a list of labels", "pass a str, or None for a new session"],
    "harness/live/inputs.py": ["pass a str"],
    "values/budgets.py": ["pass tokens=, cost= or runs="],
    "harness/session/views.py": ["use allow, ask, deny or None"],
    "harness/loop/effects.py": ["pass replace=True"],
    "harness/sandbox/local.py": ['pass "minimal", "inherit" or a dict'],
    "harness/session/session.py": ["pass a list of (role, text) pairs"],
    "harness/telemetry/logs.py": ["pass a list"],
    "harness/tools/definition.py": ["pass a number above 0, or None", ", or None"],
    "harness/worker.py": [  # no verb makes a `Worker`
        "pass a whole number from 1 on, or None",
        "pass tenants=[...], or use Harness for a single tenant",
        'pass a list of names, or "all"',
    ],
    # In the program of the agent, where tools are written:
    "harness/tools/jsonschema.py": ["declare it as f(arguments) or f(arguments, context)"],
    "harness/tools/signature.py": ["create the tool from a bound method: tool(thing.method)"],
    "sessions/posting.py": ["pass a str"],
    "sessions/schedules.py": ["pass a str"],
    "stores/__init__.py": ["pass a str such as sqlite:PATH"],
    "stores/checked.py": ["pass a str"],
    "stores/rules.py": ["pass a str"],
}


def remedies() -> Iterator[tuple[str, str]]:
    """Every remedy in the source of the library, with its file."""
    for path in sorted(SOURCE.rglob("*.py")):
        name = path.relative_to(SOURCE).as_posix()
        if name.startswith(("server/", "client/", "testing/", "cli/")):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            for found in _of(node):
                yield name, found


def _of(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.keyword) and node.arg == "remedy":
        yield from _texts(node.value)
    if isinstance(node, ast.Assign) and "remedy" in ast.dump(node.targets[0]):
        yield from _texts(node.value)


def _texts(node: ast.AST) -> Iterator[str]:
    for inner in ast.walk(node):
        if isinstance(inner, ast.Constant) and isinstance(inner.value, str):
            yield inner.value


def test_every_remedy_that_speaks_of_python_has_words_for_the_command_line() -> None:
    found = [*remedies()]
    assert len(found) > 150
    python = [(name, text) for name, text in found if PYTHON.search(text)]
    assert len(python) > 10
    missing = [
        f"{name}: {text}"
        for name, text in python
        if text not in REMEDIES and text not in PROGRAMS.get(name, [])
    ]
    assert missing == []


def test_every_remedy_that_is_translated_is_one() -> None:
    texts = {text for _, text in remedies()}
    assert [text for text in REMEDIES if text not in texts] == []
    for text in REMEDIES.values():
        assert not PYTHON.search(text), text
