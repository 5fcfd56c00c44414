"""The command `holdfast`. `main` imports the rest of the package, which needs the extra `cli`, only
when it runs.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from ..errors import MissingExtra
from .overview import answered

EXTRA = ("cyclopts", "rich")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code: 0, 1 for an error, 2 for wrong usage."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if answered(arguments):
        return 0
    try:
        from .app import run  # noqa: PLC0415  the extra may be missing
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in EXTRA:
            raise
        if arguments[:1] == ["demo"]:  # needs no extra
            from .demo import main as demo  # noqa: PLC0415

            return demo(arguments[1:])
        missing = MissingExtra(extra="cli", needed_for="holdfast")
        print(f"error: {missing} ({missing.docs})", file=sys.stderr)
        return 1
    return run(arguments)
