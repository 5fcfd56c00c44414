"""The tests that a change touches, one path a line: for `scripts/test --changed [COMMIT]`.

A change is what differs from COMMIT (`HEAD` unless given), new files included. It touches

* the test files in it, and with a helper of a test folder all tests of that folder;
* for a module of `src/holdfast`: the tests that import it, a module of its package that needs it,
  directly or through others of that package, or a module of another package that imports one;
* for documents: `tests/docs`; for `bench`: its tests; always: the rules of the architecture.

It is meant for the loop of a change. A module far away can break too: run all before you commit.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src"


def changed(commit: str) -> list[Path]:
    """The files that differ from a commit."""
    tracked = _git("diff", "--name-only", "--no-renames", commit)
    return [ROOT / name for name in (*tracked, *_git("ls-files", "--others", "--exclude-standard"))]


def _git(*words: str) -> list[str]:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def module_of(path: Path) -> str:
    """`holdfast.stores.memory` for its file."""
    name = path.relative_to(SOURCE).with_suffix("").as_posix().replace("/", ".")
    return name.removesuffix(".__init__")


def imports(path: Path) -> set[str]:
    """The modules of the package that a file imports, and the names that may be modules."""
    found: set[str] = set()
    package = module_of(path).split(".") if SOURCE in path.parents else []
    if package and path.name != "__init__.py":
        package = package[:-1]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *filter(None, [node.module])])
            found.add(module)
            found.update(f"{module}.{alias.name}" for alias in node.names)
    return {name for name in found if name.split(".")[0] == "holdfast"}


def needing(modules: set[str]) -> set[str]:
    """These modules, those of the same packages that import them, directly or not, and those of
    other packages that import one of them."""
    graph = {module_of(path): imports(path) for path in SOURCE.rglob("*.py")}
    reached, new = set(modules), set(modules)
    while new:
        new = {
            name
            for name, needs in graph.items()
            if name not in reached and any(one in needs and _near(name, one) for one in new)
        }
        reached |= new
    return reached | {name for name, needs in graph.items() if not needs.isdisjoint(reached)}


def _near(one: str, other: str) -> bool:
    return one.split(".")[:3] == other.split(".")[:3] or one.split(".")[:2] == other.split(".")[:2]


def tests_of(files: list[Path]) -> Iterator[Path]:
    """The test files that these files touch."""
    tests = ROOT / "tests"
    yield tests / "test_architecture.py"
    modules = {module_of(path) for path in files if path.suffix == ".py" and SOURCE in path.parents}
    touched = needing(modules) if modules else set()
    for path in tests.rglob("test_*.py"):
        if touched and not touched.isdisjoint(imports(path)):
            yield path
    for path in files:
        if tests in path.parents and path.exists():
            yield path if path.name.startswith("test_") else path.parent
        elif path.suffix == ".md":
            yield tests / "docs"
        elif ROOT / "bench" in path.parents:
            yield tests / "bench"


def main() -> None:
    files = changed(sys.argv[1] if len(sys.argv) > 1 else "HEAD")
    if not files:
        sys.exit("Nothing has changed.")
    found = {path for path in tests_of(files) if path.exists()}
    found = {path for path in found if found.isdisjoint(path.parents)}
    if ROOT / "tests" in found:
        found = {ROOT / "tests"}
    print(*sorted(str(path.relative_to(ROOT)) for path in found), sep="\n")


if __name__ == "__main__":
    main()
