"""The shape of the package: imports point one way, the public names are a decision, the core
needs msgspec alone, and no file names a package index. Reads the source, never runs it, but for
one child process that imports Holdfast with everything else blocked."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import holdfast

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src"

# Each line may import the lines above it. What stands on one line does not import its neighbour.
LAYOUT = """
environment errors cancellation file_lock
backoff portal
sync_proxy
log
redact values
events state transcript
stores
store
sessions
webhooks
models
harness
sync
bundle
wire local_token
server client
web
adapters
testing
cli
__init__ __main__
"""
LINES = {part: n for n, line in enumerate(LAYOUT.split("\n")) for part in line.split()}

# The same within the harness. What is left out stands on top of all of it.
HARNESS = """
telemetry sandbox
tools
faults
agents
live
loop
workers
session
"""
FLOORS = {part: n for n, line in enumerate(HARNESS.split("\n")) for part in line.split()}

# The same within the core.
LOG = """
events
codec
catalog state conversation
transcript search
"""
CORE_FLOORS = {part: n for n, line in enumerate(LOG.split("\n")) for part in line.split()}

# What server and client share stands on this alone.
PURE = {"errors", "log", "values"}
PUBLIC_CORE = {"events", "state", "transcript", "store"}  # public names of modules further in
CORE = (
    PURE
    | PUBLIC_CORE
    | {"redact", "stores", "environment", "cancellation", "file_lock", "backoff", "portal"}
)
# May import what they are made for.
DRIVERS = ("holdfast.stores.postgres", "holdfast.stores.mongodb", "holdfast.stores.vault")

PUBLIC = """
Agent AlreadyDecided Appended Ask Attempts BlobNotFound BlobRef Budget CaughtUp Context Damage
DeletionRefused Delta Draft ErrorPolicy Event Harness HarnessClosed HeadMoved HoldfastError Hook
Inbound InvalidAgent InvalidBundle InvalidValue Key KeyMissing LIMITS Lease LeaseHeld LeaseLost
Limits LogConfig LogDamaged LogReplaced Media MissingExtra Mode ModelError ModelRateLimited
ModelTimeout ModelUnavailable NewEvent NotContinuable NotPending Page Parent Pending PendingQuery
PhaseError Query QueueFull Reading Receipt Remains Result Retention Retry Row RunFailed RunLimits
Scope Session SessionBusy SessionExists SessionMoved SessionNotFound Sessions Snapshot Store
StoreDamaged StoreError StoreInfo StoreReplaced StoreTooNew StoreUnavailable SubAgent SurfaceTaken
Sweeper Tool ToolContext ToolError ToolMissing ToolResult Trouble UnknownStore UnsafePoint Vault
Worker WrongLoop bundle_schema connect context export_bundle hook import_bundle key new_id
shared_store tool validate_bundle
"""


def dotted(path: Path) -> str:
    """`src/holdfast/stores/__init__.py` is `holdfast.stores`."""
    return ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")


MODULES = {dotted(path): path for path in sorted(SOURCE.rglob("*.py"))}


def imports(module: str, source: str) -> Iterator[str]:
    """Every module that the source of `module` imports, wherever in it the import stands."""
    inside = module.split(".")
    if MODULES[module].name != "__init__.py":
        inside.pop()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = inside[: len(inside) - node.level + 1] if node.level else []
            base = ".".join([*above, *filter(None, [node.module])])
            for alias in node.names:
                whole = f"{base}.{alias.name}"
                yield whole if whole in MODULES else base


def part(module: str) -> str:
    """The name in the layout under which a module stands."""
    return module.split(".")[1] if "." in module else "__init__"


@cache
def graph() -> dict[str, set[str]]:
    """What each module imports. Read on demand: every worker of pytest imports this file."""
    return {module: set(imports(module, path.read_text())) for module, path in MODULES.items()}


@pytest.mark.parametrize(
    ("module", "source", "found"),
    [
        ("holdfast.stores.memory", "from . import rules", "holdfast.stores.rules"),
        ("holdfast.stores.memory", "from .port import Store", "holdfast.stores.port"),
        ("holdfast.stores.memory", "from ..log import catalog as c", "holdfast.log.catalog"),
        ("holdfast.stores.memory", "from .. import connect", "holdfast"),
        ("holdfast.stores", "def f():\n from .memory import M", "holdfast.stores.memory"),
        ("holdfast", "if x:\n from .stores import connect", "holdfast.stores"),
        ("holdfast.log.codec", "import holdfast.errors", "holdfast.errors"),
        ("holdfast.log.codec", "from msgspec import json", "msgspec"),
    ],
)
def test_every_form_of_import_is_seen(module: str, source: str, found: str) -> None:
    assert list(imports(module, source)) == [found]


def test_imports_point_one_way() -> None:
    wrong = [
        f"{module} imports {target}"
        for module, targets in graph().items()
        for target in targets & set(MODULES)
        if part(module) != part(target) and LINES[part(target)] >= LINES[part(module)]
    ]
    assert wrong == []


@pytest.mark.parametrize(("package", "floors"), [("harness", FLOORS), ("log", CORE_FLOORS)])
def test_imports_point_one_way_within(package: str, floors: dict[str, int]) -> None:
    inside = [module for module in MODULES if module.startswith(f"holdfast.{package}.")]
    assert {name.split(".")[2] for name in inside} >= set(floors)
    wrong = [
        f"{module} imports {target}"
        for module in inside
        for target in graph()[module] & set(inside)
        if (own := module.split(".")[2]) != (other := target.split(".")[2])
        if own in floors and floors.get(other, len(floors)) >= floors[own]
    ]
    assert wrong == []


@pytest.mark.parametrize(("name", "may"), [("values", PURE), ("wire", PURE | {"wire"})])
def test_values_and_wire_import_the_pure_core_alone(name: str, may: set[str]) -> None:
    inside = {module: targets for module, targets in graph().items() if part(module) == name}
    assert inside
    wrong = [
        f"{module} imports {target}"
        for module, targets in inside.items()
        for target in targets & set(MODULES)
        if part(target) not in may
    ]
    assert wrong == []


def test_the_client_loads_no_harness_no_store_and_no_server() -> None:
    """In a process of its own, with all that the package itself loads."""
    child = """
import sys
import holdfast.client
import holdfast.client.sync
inner = ("holdfast.harness", "holdfast.stores", "holdfast.server")
print(*(name for name in sys.modules if name.startswith(inner)))
"""
    ended = subprocess.run(
        [sys.executable, "-c", child], capture_output=True, text=True, check=True
    )
    assert ended.stdout.split() == []


def test_other_packages_import_the_facade_of_the_harness_alone() -> None:
    wrong = [
        f"{module} imports {target}"
        for module, targets in graph().items()
        if part(module) != "harness"
        for target in targets
        if target.startswith("holdfast.harness.")
    ]
    assert wrong == []


def test_every_module_has_a_place_in_the_layout() -> None:
    assert {part(module) for module in MODULES} <= set(LINES)


def test_no_imports_go_in_a_circle() -> None:
    TopologicalSorter({module: targets - {module} for module, targets in graph().items()}).prepare()


def test_the_core_imports_msgspec_and_the_standard_library_alone() -> None:
    known = {*sys.stdlib_module_names, "msgspec", "holdfast"}
    wrong = [
        f"{module} imports {target}"
        for module, targets in graph().items()
        if not module.startswith(DRIVERS) and part(module) in CORE
        for target in targets
        if target.split(".")[0] not in known
    ]
    assert wrong == []


def test_the_public_names_are_these() -> None:
    assert sorted(holdfast.__all__) == sorted(PUBLIC.split())
    assert len(set(holdfast.__all__)) == len(holdfast.__all__)
    for name in holdfast.__all__:
        assert hasattr(holdfast, name)


# Where the documentation tells programs to import from.
IMPORTED = """
holdfast holdfast.adapters.adk holdfast.adapters.claude holdfast.adapters.langgraph
holdfast.adapters.openai
holdfast.bundle holdfast.bundle.claude
holdfast.adapters.pydantic_ai
holdfast.bundle.harn holdfast.client holdfast.client.sync holdfast.errors holdfast.events
holdfast.harness.sandbox
holdfast.harness.tools holdfast.models holdfast.redact holdfast.server holdfast.state holdfast.sync
holdfast.testing holdfast.web holdfast.webhooks
"""


@pytest.mark.parametrize("module", IMPORTED.split())
def test_dir_shows_the_public_names_and_no_others(module: str) -> None:
    """In a process of its own: a name that is imported when it is first used is there before."""
    child = f"""
import {module} as module
shown = dir(module)
assert set(shown) - {{"__version__"}} == set(module.__all__), shown
assert all(hasattr(module, name) for name in shown)
"""
    subprocess.run([sys.executable, "-c", child], check=True)


def test_importing_holdfast_needs_msgspec_alone() -> None:
    child = """
import importlib.abc, sys

class Others(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in {*sys.stdlib_module_names, "msgspec", "holdfast"}:
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Others())
import holdfast
assert "sqlite3" not in sys.modules
print(holdfast.__version__)
"""
    ended = subprocess.run(
        [sys.executable, "-c", child], capture_output=True, text=True, check=False
    )
    assert ended.stdout.strip() == holdfast.__version__, ended.stderr


def test_a_module_says_what_it_owns_and_owns_little() -> None:
    sources = {module: path.read_text() for module, path in MODULES.items()}
    assert [name for name, text in sources.items() if not ast.get_docstring(ast.parse(text))] == []
    assert [name for name, text in sources.items() if text.count("\n") > 600] == []


def tracked() -> list[Path]:
    """The files under version control; without git, all that an sdist would hold."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if listed.returncode == 0:
        return [path for name in listed.stdout.split("\0") if (path := ROOT / name).is_file()]
    hidden = re.compile(r"/(\.(?!ci/)|__pycache__/)")
    return [
        path
        for path in ROOT.rglob("*")
        if path.is_file() and not hidden.search(f"/{path.relative_to(ROOT)}")
    ]


def test_no_file_names_a_package_index() -> None:
    address = re.compile(rb"pypi\.org|pythonhosted\.org|--(extra-)?index-url[= ]|--find-links[= ]")
    locks = {"uv.lock", "poetry.lock", "pdm.lock", "Pipfile.lock", "pylock.toml"}
    files = tracked()
    assert ROOT / "pyproject.toml" in files
    assert [path for path in files if path.name in locks] == []
    assert [path for path in files if address.search(path.read_bytes())] == []
    for path in ROOT.glob("requirements/*.txt"):
        assert "://" not in path.read_text()
