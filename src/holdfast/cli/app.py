"""The verbs put together, and what becomes of errors, Ctrl-C and a closed pipe."""

from __future__ import annotations

import importlib
import itertools
import os
import sys
from collections.abc import Sequence

from cyclopts import App, CycloptsError, Group, Parameter, UnknownCommandError

from ..errors import HoldfastError
from . import failure
from .output import tolerant, version

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
# Where each verb is, so that a command line imports its own verb and no other.
VERBS: dict[str, tuple[str, Group]] = {
    "chat": ("chat:chat", RUNNING),
    "pending": ("pending:pending", RUNNING),
    "approve": ("pending:approve", RUNNING),
    "deny": ("pending:deny", RUNNING),
    "answer": ("pending:answer", RUNNING),
    "abort": ("pending:abort", RUNNING),
    "resume": ("resume:resume", RUNNING),
    "serve": ("serve:serve", RUNNING),
    "token": ("token:token", RUNNING),
    "sessions": ("listing:sessions", READING),
    "show": ("show:show", READING),
    "tail": ("tail:tail", READING),
    "sweep": ("sweep:sweep", LIFE),
    "verify": ("upkeep:verify", UPKEEP),
    "anchors": ("upkeep:anchors", UPKEEP),
    "repair": ("upkeep:repair", UPKEEP),
    "delete": ("upkeep:delete", UPKEEP),
    "purge": ("upkeep:purge", UPKEEP),
    "copy": ("copy:copy", UPKEEP),
    "export": ("export:export", UPKEEP),
    "import": ("import_bundle:import_", UPKEEP),
    "unseal": ("unseal:unseal", UPKEEP),
    "migrate": ("migrate:migrate", UPKEEP),
    "doctor": ("doctor:doctor", UPKEEP),
    "new": ("new:new", TRYING),
    "demo": ("demo:demo", TRYING),
}
GROUPS = {
    "session": LIFE,
    "person": LIFE,
    "keys": RUNNING,
    "bundle": UPKEEP,
    "vault": UPKEEP,
    "claude": UPKEEP,
}
INTERRUPTED, BROKEN_PIPE = 130, 141  # what a shell reports of SIGINT and SIGPIPE


def build(wanted: str | None = None) -> App:
    """The command line with all its verbs. Only the `wanted` one is imported; without one, all."""
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
    for place, (name, (path, group)) in enumerate(VERBS.items()):
        app.command(f"holdfast.cli.{path}", name=name, group=group, sort_key=place)
    for place, (name, group) in enumerate(GROUPS.items(), len(VERBS)):
        if wanted in (None, name):
            app.command(importlib.import_module(f"holdfast.cli.{name}").app(group, place))
        else:
            app.command(f"holdfast.cli.{name}:app", name=name, group=group, sort_key=place)
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
    verb = _verb(tokens)
    app = build("" if "--version" in tokens[:1] else verb and verb.partition(" ")[0])
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
