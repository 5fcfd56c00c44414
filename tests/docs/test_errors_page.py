"""`docs/errors.md` has one section per error code, whose anchor is the code: what an error means,
and what to do. The command line and the server name it as `docs/errors.md#CODE`."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import holdfast
from holdfast.errors import HoldfastError

PAGE = (Path(__file__).parents[2] / "docs" / "errors.md").read_text()
SECTIONS = dict(re.findall(r"^### (\S+)\n(.*?)(?=^##|\Z)", PAGE, re.M | re.S))
RETRY = "**Retry.**"


def classes() -> dict[str, type[HoldfastError]]:
    """Every error class of the package by its code, wherever it is defined."""
    root = Path(holdfast.__path__[0])
    for path in sorted(root.rglob("*.py")):
        if re.search(r"^class \w+\(HoldfastError\)", path.read_text(), re.M):
            import_module(".".join(("holdfast", *path.relative_to(root).with_suffix("").parts)))
    found, waiting = dict[str, type[HoldfastError]](), [HoldfastError]
    for kind in waiting:
        if kind.__module__.startswith("holdfast."):
            found.setdefault(kind.code, kind)  # a subclass may share the code of its base
        waiting += kind.__subclasses__()
    return found


def test_every_error_code_has_an_anchor_with_what_to_do() -> None:
    found = classes()
    assert len(found) > 50
    assert sorted(SECTIONS) == sorted(found)
    for code, kind in found.items():
        said = SECTIONS[code]
        assert f"`{kind.__name__}`, code `{code}`." in said, code
        assert re.search(r"^What to do: .", said, re.M), code
        assert (RETRY in said) == kind.retryable, code


def test_every_error_code_is_in_the_table_of_the_page() -> None:
    table = PAGE.partition("| area | codes |")[2].partition("\n\n")[0]
    assert re.findall(r"\[(\w+)\]\(#\1\)", table) == list(SECTIONS)
