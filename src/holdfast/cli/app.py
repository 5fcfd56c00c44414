"""The verbs put together, and what becomes of errors, Ctrl-C and a closed pipe."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

from cyclopts import App, CycloptsError, Group, Parameter, UnknownCommandError

from ..errors import HoldfastError
from . import bundle, claude, failure, keys, person, session, vault
from .chat import chat
from .copy import copy
from .demo import demo
from .doctor import doctor, version
from .export import export
from .importing import import_
from .listing import sessions
from .migrate import migrate
from .new import new
from .output import tolerant
from .pending import abort, answer, approve, deny, pending
from .resume import resume
from .serve import serve
from .show import show
from .sweep import sweep
from .tail import tail
from .token import token
from .unseal import unseal
from .upkeep import anchors, delete, purge, repair, verify

HELP = """Durable sessions for AI agents: talk to them, answer them, follow them, keep them sound.

```
holdfast chat
holdfast sessions --store sqlite:shop.db
holdfast show customer-42
holdfast VERB --help
```
"""
READING, UPKEEP = Group("Reading", sort_key=1), Group("Upkeep", sort_key=2)
RUNNING, LIFE = Group("Running", sort_key=0.5), Group("Life cycle", sort_key=1.5)
TRYING, OPTIONS = Group("Trying", sort_key=3), Group("Options", sort_key=4)
VERBS: dict[Callable[..., Any], Group] = {
    chat: RUNNING,
    pending: RUNNING,
    approve: RUNNING,
    deny: RUNNING,
    answer: RUNNING,
    abort: RUNNING,
    resume: RUNNING,
    serve: RUNNING,
    token: RUNNING,
    sessions: READING,
    show: READING,
    tail: READING,
    sweep: LIFE,
    verify: UPKEEP,
    anchors: UPKEEP,
    repair: UPKEEP,
    delete: UPKEEP,
    purge: UPKEEP,
    copy: UPKEEP,
    export: UPKEEP,
    import_: UPKEEP,
    unseal: UPKEEP,
    migrate: UPKEEP,
    doctor: UPKEEP,
    new: TRYING,
    demo: TRYING,
}
GROUPS = {
    "session": (session, LIFE),
    "person": (person, LIFE),
    "keys": (keys, RUNNING),
    "bundle": (bundle, UPKEEP),
    "vault": (vault, UPKEEP),
    "claude": (claude, UPKEEP),
}
INTERRUPTED, BROKEN_PIPE = 130, 141  # what a shell reports of SIGINT and SIGPIPE


def build() -> App:
    """The command line with all its verbs."""
    app = App(
        name="holdfast",
        help=HELP,
        version=version,
        help_format="markdown",
        default_parameter=Parameter(negative="", show_default=_default),
        suppress_keyboard_interrupt=False,
        result_action="return_value",
        print_error=False,
        exit_on_error=False,
    )
    for place, (verb, group) in enumerate(VERBS.items()):
        app.command(verb, group=group, sort_key=place)
    for place, (verbs, group) in enumerate(GROUPS.values(), len(VERBS)):
        app.command(verbs.app(group, place))
    for flag in ("--help", "--version"):
        app[flag].group = OPTIONS
    return app


def _default(value: object) -> str | None:
    # "False" and "[]" tell a reader nothing.
    return str(value) if value else None


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code."""
    tolerant()
    tokens = options_behind_verb(arguments)
    json = "--json" in tokens[: tokens.index("--") if "--" in tokens else None]
    verb, app = _verb(tokens), build()
    try:
        code = app(tokens)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except UnknownCommandError as error:
        # What there is, the help says better.
        message = str(error).partition(" Available commands:")[0]
        return failure.report_usage(message, tokens[0] if tokens[0] in GROUPS else None, json=json)
    except CycloptsError as error:
        return failure.report_usage(str(error), verb, json=json)
    except failure.UsageError as error:
        return failure.report_usage(str(error), verb, json=json)
    except HoldfastError as error:
        return failure.report(error, json=json, options=_options(app, verb))
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        _forget_stdout()
        return BROKEN_PIPE


def _verb(tokens: Sequence[str]) -> str | None:
    """The verb, which has two words where the first names a group."""
    words = list(itertools.takewhile(lambda word: not word.startswith("-"), tokens))
    return " ".join(words[: 2 if words[0] in GROUPS else 1]) if words else None


def _options(app: App, verb: str | None) -> dict[str, str]:
    """The arguments of a verb by name, as they are written on the command line: `--thread`,
    `SESSION`. The store is none of them: it may be named by the environment."""
    for word in (verb or "").split():
        app = app[word]
    arguments = app.assemble_argument_collection(parse_docstring=False)
    named = {one.field_info.name.rstrip("_"): one.name for one in arguments if one.name != "*"}
    named.pop("store", None)
    return named


def options_behind_verb(arguments: Sequence[str]) -> list[str]:
    """The same command line with `--store`, `--tenant` and `--json` behind the verb."""
    leading: list[str] = []
    rest = list(arguments)
    while rest and rest[0].partition("=")[0] in ("--store", "--tenant", "--json"):
        takes_value = rest[0] in ("--store", "--tenant")
        leading += [rest.pop(0)]
        if takes_value and rest:
            leading += [rest.pop(0)]
    words = 2 if rest[:1] and rest[0] in GROUPS else 1
    return [*rest[:words], *leading, *rest[words:]]


def _forget_stdout() -> None:
    # The interpreter flushes stdout when it ends, and would complain of the closed pipe.
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
