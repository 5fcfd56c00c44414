"""Measure the shape of the package: `shape.py [COMMIT] [--list] [--json] [--source DIR]`.

Reads `src/holdfast` of the working tree and, if given, of a commit, and prints one table. Needs the
standard library alone; two measures import the package in a child process and are left out ("-")
where that fails.

What is counted:

- lines: line ends of every module; AST nodes: what `ast.walk` visits in every module.
- a function: from its `def` to its last line, without decorators; methods and nested ones too.
- a wide class: more than 15 public methods in its own body. Protocols are counted apart.
- a shared name: a public class of the same name at the top level of two or more modules.
- a local import: an import statement inside a function.
- a duplicate pair: two functions that share a window of 3 consecutive statements with at least 20
  tokens. A compound statement counts by its head, and the statements of its body follow. Tokens are
  node types, attributes, keywords and operators. Names of variables, values of constants,
  docstrings and `await` or `async` make no difference, so a copy with other names is found. Copies
  of one or two statements, and one call spelled out in many methods, are not.
- the client loads: modules of harness, stores and server in `sys.modules` after
  `import holdfast.client`.
- past the facade: modules below `holdfast.harness` that a module outside of it imports.
- a warm turn: the second message to an offline model on a new SQLite store; modules and named
  functions that are entered in any thread, without lambdas and comprehensions.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import os
import statistics
import subprocess
import sys
import tarfile
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "holdfast"
FACADE = f"{PACKAGE}.harness"
INNER = ("harness", "stores", "server")  # what a client must not load

LONG_FUNCTION = 50  # lines
WIDE_CLASS = 15  # public methods
WINDOW, WINDOW_TOKENS = 3, 20

Function = ast.FunctionDef | ast.AsyncFunctionDef
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
Count = int | float | None
Tokens = tuple[str, ...]

LABELS = {
    "modules": "modules",
    "lines": "lines",
    "ast_nodes": "AST nodes",
    "median_module": "median module, lines",
    "largest_module": "largest module, lines",
    "long_functions": f"functions > {LONG_FUNCTION} lines",
    "wide_classes": f"classes with > {WIDE_CLASS} own public methods",
    "wide_protocols": "  and Protocols",
    "shared_names": "public class names with two or more meanings",
    "local_imports": "function-local imports",
    "duplicate_pairs": "duplicate pairs of functions",
    "duplicates_per_10k": "  per 10,000 lines",
    "client_loads": "inner modules that `import holdfast.client` loads",
    **{f"client_loads_{part}": f"  {part}" for part in INNER},
    "past_facade": f"modules imported past {FACADE}",
    "turn_packages": "a warm turn enters: packages",
    "turn_modules": "  modules",
    "turn_functions": "  functions",
}


@dataclass(frozen=True)
class Module:
    """One module: its dotted name, its path for people, its source and its tree."""

    name: str
    path: str
    source: str
    tree: ast.Module

    @property
    def lines(self) -> int:
        return self.source.count("\n")

    @property
    def package(self) -> list[str]:
        """The parts of the package that its relative imports start from."""
        parts = self.name.split(".")
        return parts if self.path.endswith("__init__.py") else parts[:-1]


@dataclass(frozen=True)
class Shape:
    """Counts by the keys of `LABELS`, and the entries behind those that have any."""

    counts: dict[str, Count]
    lists: dict[str, list[str]]


def measure(source: Path) -> Shape:
    """Measure the package in the folder `source`."""
    modules = list(read_modules(source))
    sizes = sorted((module.lines, module.path) for module in modules)
    lists = {
        "largest_module": [f"{path}: {lines} lines" for lines, path in sizes[-1:]],
        "long_functions": sorted(long_functions(modules)),
        "wide_classes": sorted(wide_classes(modules, protocols=False)),
        "wide_protocols": sorted(wide_classes(modules, protocols=True)),
        "shared_names": sorted(shared_names(modules)),
        "local_imports": sorted(local_imports(modules)),
        "duplicate_pairs": sorted(duplicate_pairs(modules)),
        "past_facade": sorted(past_facade(modules)),
    }
    total = sum(lines for lines, _ in sizes)
    counts: dict[str, Count] = {key: len(entries) for key, entries in lists.items()}
    counts |= {
        "modules": len(modules),
        "lines": total,
        "ast_nodes": sum(1 for module in modules for _ in ast.walk(module.tree)),
        "median_module": statistics.median(lines for lines, _ in sizes),
        "largest_module": sizes[-1][0],
        "duplicates_per_10k": round(len(lists["duplicate_pairs"]) / total * 10_000, 2),
    }
    for found in (client_loads(source), warm_turn(source)):
        counts |= found.counts
        lists |= found.lists
    return Shape({key: counts[key] for key in LABELS}, lists)


def read_modules(source: Path) -> Iterator[Module]:
    paths = sorted((source / PACKAGE).rglob("*.py"))
    if not paths:
        sys.exit(f"shape: no modules in {source / PACKAGE}")
    for path in paths:
        inside = path.relative_to(source)
        name = ".".join(inside.with_suffix("").parts).removesuffix(".__init__")
        text = path.read_text(encoding="utf-8")
        yield Module(name, inside.as_posix(), text, ast.parse(text))


def functions(tree: ast.AST) -> Iterator[Function]:
    return (node for node in ast.walk(tree) if isinstance(node, FUNCTIONS))


# Sizes and names


def long_functions(modules: Iterable[Module]) -> Iterator[str]:
    for module in modules:
        for function in functions(module.tree):
            lines = (function.end_lineno or function.lineno) - function.lineno + 1
            if lines > LONG_FUNCTION:
                yield f"{module.path}:{function.lineno} {function.name}: {lines} lines"


def wide_classes(modules: Iterable[Module], *, protocols: bool) -> Iterator[str]:
    for module in modules:
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ClassDef) and is_protocol(node) == protocols:
                own = {each.name for each in node.body if isinstance(each, FUNCTIONS)}
                public = sum(not name.startswith("_") for name in own)
                if public > WIDE_CLASS:
                    yield f"{module.path}:{node.lineno} {node.name}: {public} methods"


def is_protocol(node: ast.ClassDef) -> bool:
    bases = (base.value if isinstance(base, ast.Subscript) else base for base in node.bases)
    names = (base.attr if isinstance(base, ast.Attribute) else base for base in bases)
    return any(getattr(name, "id", name) == "Protocol" for name in names)


def shared_names(modules: Iterable[Module]) -> Iterator[str]:
    homes: defaultdict[str, set[str]] = defaultdict(set)
    for module in modules:
        for node in module.tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].add(module.name)
    for name, found in homes.items():
        if len(found) > 1:
            yield f"{name}: {', '.join(sorted(found))}"


# Imports


def local_imports(modules: Iterable[Module]) -> Iterator[str]:
    for module in modules:
        found = {
            node
            for function in functions(module.tree)
            for node in ast.walk(function)
            if isinstance(node, (ast.Import, ast.ImportFrom))
        }
        for node in found:
            yield f"{module.path}:{node.lineno} {ast.unparse(node)}"


def past_facade(modules: list[Module]) -> Iterator[str]:
    known = {module.name for module in modules}
    importers: defaultdict[str, set[str]] = defaultdict(set)
    for module in modules:
        if module.name != FACADE and not module.name.startswith(f"{FACADE}."):
            for target in imported(module, known):
                if target.startswith(f"{FACADE}."):
                    importers[target].add(module.name)
    for target, found in importers.items():
        yield f"{target}: {', '.join(sorted(found))}"


def imported(module: Module, known: set[str]) -> Iterator[str]:
    """The modules of `known` that a module imports, wherever in it the import stands."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom):
            inside = module.package
            above = inside[: len(inside) - node.level + 1] if node.level else []
            base = ".".join([*above, *filter(None, [node.module])])
            for alias in node.names:
                whole = f"{base}.{alias.name}"
                yield whole if whole in known else base


# Duplicates


def duplicate_pairs(modules: Iterable[Module]) -> Iterator[str]:
    windows: defaultdict[tuple[Tokens, ...], set[tuple[str, int, str]]] = defaultdict(set)
    for module in modules:
        for function in functions(module.tree):
            heads = [tuple(tokens(each)) for each in statements(function.body)]
            for start in range(len(heads) - WINDOW + 1):
                window = tuple(heads[start : start + WINDOW])
                if sum(map(len, window)) >= WINDOW_TOKENS:
                    windows[window].add((module.path, function.lineno, function.name))
    pairs = {pair for same in windows.values() for pair in combinations(sorted(same), 2)}
    for first, second in pairs:
        yield " = ".join(f"{path}:{line} {name}" for path, line, name in (first, second))


BLOCKS = {"body", "orelse", "finalbody", "handlers", "cases"}
SAME = {"AsyncFor": "For", "AsyncWith": "With"}


def statements(body: list[ast.stmt]) -> Iterator[ast.AST]:
    """The statements of a body in order, each before those inside it; no docstrings, and nothing
    of nested functions and classes."""
    for each in body:
        if isinstance(each, (*FUNCTIONS, ast.ClassDef)) or is_text(each):
            continue
        yield each
        for name in ("body", "orelse", "finalbody"):
            yield from statements(getattr(each, name, []))
        for part in (*getattr(each, "handlers", []), *getattr(each, "cases", [])):
            yield part
            yield from statements(part.body)


def is_text(node: ast.stmt) -> bool:
    value = node.value if isinstance(node, ast.Expr) else None
    return isinstance(value, ast.Constant) and isinstance(value.value, str)


def tokens(node: ast.AST) -> Iterator[str]:
    """A statement's head, or an expression, without what the author was free to name."""
    if isinstance(node, ast.Await):
        yield from tokens(node.value)
        return
    kind = type(node).__name__
    yield SAME.get(kind, kind)
    if isinstance(node, ast.Constant):
        yield type(node.value).__name__
        return
    for name, value in ast.iter_fields(node):
        if name == "ctx" or (isinstance(node, ast.Name) and name == "id"):
            continue
        if name in BLOCKS and isinstance(value, list):
            continue
        for part in value if isinstance(value, list) else [value]:
            if isinstance(part, ast.AST):
                yield from tokens(part)
            elif part is not None:
                yield str(part)


# What runs

CLIENT = f"""
import json, sys
sys.path.insert(0, sys.argv[1])
import {PACKAGE}.client
print(json.dumps(sorted(name for name in sys.modules if name.startswith("{PACKAGE}."))))
"""

TURN = f"""
import asyncio, inspect, json, os, sys, threading
source = os.path.join(sys.argv[1], "")
sys.path.insert(0, sys.argv[1])
from {PACKAGE} import Agent, Harness
from {PACKAGE}.models import offline

entered, warm = set(), False

def profile(frame, event, _):
    code = frame.f_code
    if warm and event == "call" and code.co_filename.startswith(source) and code.co_name[0] != "<":
        entered.add(code.co_filename[len(source):] + " " + code.co_qualname)

async def main():
    global warm
    agent = Agent("shape", instructions="Help.", model="scripted/offline")
    store = "store" if "store" in inspect.signature(Harness).parameters else "storage"  # once
    options = {{"providers": [offline()], store: "sqlite:shape.db"}}
    async with Harness(agent, **options) as harness:
        session = await harness.get_or_create("shape")
        await session.send("hello")
        warm = True
        result = await session.send("hello again")
        warm = False
        assert result.status == "done", result.status

threading.setprofile(profile)
sys.setprofile(profile)
asyncio.run(main())
sys.setprofile(None)
print(json.dumps(sorted(entered)))
"""


def client_loads(source: Path) -> Shape:
    loaded = in_child(CLIENT, source)
    counts: dict[str, Count] = dict.fromkeys(key for key in LABELS if key.startswith("client_"))
    if loaded is None:
        return Shape(counts, {})
    inner = [name for name in loaded if name.split(".")[1] in INNER]
    for part in INNER:
        counts[f"client_loads_{part}"] = sum(name.split(".")[1] == part for name in inner)
    return Shape(counts | {"client_loads": len(inner)}, {"client_loads": inner})


def warm_turn(source: Path) -> Shape:
    entered = in_child(TURN, source)
    if entered is None:
        return Shape(dict.fromkeys(("turn_packages", "turn_modules", "turn_functions")), {})
    modules = {each.split()[0] for each in entered}
    counts: dict[str, Count] = {
        "turn_packages": len({os.path.dirname(path) for path in modules}),
        "turn_modules": len(modules),
        "turn_functions": len(entered),
    }
    return Shape(counts, {"turn_functions": entered})


def in_child(program: str, source: Path) -> list[str] | None:
    """What a program prints as JSON, given the folder of the package; None if it fails."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-P", "-W", "ignore", "-c", program, str(source.resolve())]
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=120, check=False
        )
    if done.returncode:
        why = (done.stderr.strip().splitlines() or ["no message"])[-1]
        print(f"shape: not measured in {source}: {why}", file=sys.stderr)
        return None
    found: list[str] = json.loads(done.stdout)
    return found


# The command


def measure_commit(commit: str) -> Shape:
    """The shape of the package as a commit has it."""
    git = ["git", "-C", str(ROOT)]
    named = [*git, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{commit}^{{commit}}"]
    found = subprocess.run(named, capture_output=True, text=True, check=False)
    if found.returncode:
        sys.exit(f"shape: no commit {commit!r} in {ROOT}")
    archive = [*git, "archive", found.stdout.strip(), f"src/{PACKAGE}"]
    packed = subprocess.run(archive, capture_output=True, check=True).stdout
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
            tar.extractall(folder, filter="data")
        return measure(Path(folder) / "src")


def table(shapes: dict[str, Shape]) -> Iterator[str]:
    columns = [{key: shown(shape.counts[key]) for key in LABELS} for shape in shapes.values()]
    first = max(map(len, LABELS.values()))
    widths = [
        max(len(name), *map(len, column.values()))
        for name, column in zip(shapes, columns, strict=True)
    ]
    heads = (f"{name:>{width}}" for name, width in zip(shapes, widths, strict=True))
    yield "  ".join([" " * first, *heads])
    for key, label in LABELS.items():
        cells = (f"{column[key]:>{width}}" for column, width in zip(columns, widths, strict=True))
        yield "  ".join([f"{label:<{first}}", *cells])


def shown(count: Count) -> str:
    return "-" if count is None else f"{count:,.10g}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="shape", description="The shape of the package.")
    parser.add_argument("commit", nargs="?", metavar="COMMIT", help="show this commit as well")
    parser.add_argument("--list", action="store_true", help="print the entries behind the counts")
    parser.add_argument("--json", action="store_true", help="print counts and entries as JSON")
    parser.add_argument(
        "--source", type=Path, default=ROOT / "src", metavar="DIR", help="where the package is"
    )
    chosen = parser.parse_args()
    shapes = {chosen.commit: measure_commit(chosen.commit)} if chosen.commit else {}
    shapes["working tree"] = measure(chosen.source)
    if chosen.json:
        print(json.dumps({name: asdict(shape) for name, shape in shapes.items()}, indent=2))
        return
    print("\n".join(table(shapes)))
    if chosen.list:
        for key, entries in shapes["working tree"].lists.items():
            print(f"\n{LABELS[key].strip()}:", *entries, sep="\n  ")


if __name__ == "__main__":
    main()
