"""Runs a command line, reports its errors and returns the exit code."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Sequence

from cyclopts import (
    App,
    CycloptsError,
    Group,
    MissingArgumentError,
    Parameter,
    UnknownCommandError,
    UnusedCliTokensError,
)

from ..errors import HoldfastError
from . import error_report
from .output import escape_unencodable
from .overview import version
from .verbs import GROUPS, HELP, SECTIONS, VERBS

INTERRUPTED, BROKEN_PIPE = 130, 141  # the exit codes that a shell reports after SIGINT and SIGPIPE

# What to do about an argument too many, by verb.
HINTS = {
    "export": "; name the file with --out FILE",
    "search": "; put the whole query in quotes",
}


def build(wanted: str | None = None) -> App:
    """Build the command line with all its verbs; none is imported yet. The `wanted` verb gets its
    help from its docstring, the others from the table."""
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

    sections = {name: Group(name, sort_key=place) for place, name in enumerate(SECTIONS)}
    for place, (name, (section, path, summary)) in enumerate(VERBS.items()):
        help, under = None if name == wanted else summary, sections[section]
        app.command(f"holdfast.cli.{path}", name=name, help=help, group=under, sort_key=place)
    for place, (group, (section, about, verbs)) in enumerate(GROUPS.items(), len(VERBS)):
        under = sections[section]
        part = App(name=group, help=about, help_format="markdown", group=under, sort_key=place)
        app.command(part)
        for at, (function, summary) in enumerate(verbs.items()):
            name = function.rstrip("_")
            help = None if f"{group} {name}" == wanted else summary
            part.command(f"holdfast.cli.{group}:{function}", name=name, help=help, sort_key=at)
    options = Group("Options", sort_key=len(sections))
    app.register_install_completion_command(add_to_startup=True, group=options)
    for flag in ("--help", "--version"):
        app[flag].group = options
    return app


def _default(value: object) -> str | None:
    # Defaults such as "False" and "[]" are not shown: they would not help a user.
    return str(value) if value else None


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code."""
    escape_unencodable()
    tokens = options_behind_verb(arguments)
    json = "--json" in tokens[: tokens.index("--") if "--" in tokens else None]
    verb = _verb(tokens)
    app = build(verb)
    try:
        code = app(tokens)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except UnknownCommandError as error:
        # The list of commands is removed from the message: --help shows it.
        message = str(error).partition(" Available commands:")[0]
        group = tokens[0] if tokens[0] in GROUPS else None
        return error_report.report_usage(message, group, json=json)
    except (CycloptsError, error_report.UsageError) as error:
        return error_report.report_usage(_usage(error, verb), verb, json=json)
    except HoldfastError as error:
        return error_report.report(error, json=json, options=_options(app, verb))
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        _discard_stdout()
        return BROKEN_PIPE


def _usage(error: Exception, verb: str | None) -> str:
    """Return the message of a usage error, reworded if the parser's own message is unclear."""
    match error:
        case UnusedCliTokensError(unused_tokens=[first, *_]):
            return f"unexpected argument {first!r}{HINTS.get(verb or '', '')}"
        case MissingArgumentError(argument=argument) if argument is not None:
            return f"{verb} needs {argument.name}"
    return str(error)


def _verb(tokens: Sequence[str]) -> str | None:
    """Return the verb in a command line. A verb has two words if the first is the name of
    a group.
    """
    words = list(itertools.takewhile(lambda word: not word.startswith("-"), tokens))
    return " ".join(words[: 2 if words[0] in GROUPS else 1]) if words else None


def _options(app: App, verb: str | None) -> dict[str, str]:
    """Return the options and arguments of a verb as the user types them (`--thread`, `SESSION`), by
    the name of the parameter. The store is omitted, because it may come from the environment.
    """
    for word in (verb or "").split():
        app = app[word]
    arguments = app.assemble_argument_collection(parse_docstring=False)
    named = {one.field_info.name.rstrip("_"): one.name for one in arguments if one.name != "*"}
    named.pop("store", None)
    return named


def options_behind_verb(arguments: Sequence[str]) -> list[str]:
    """Return the command line with leading `--store`, `--tenant` and `--json` moved after the
    verb."""
    leading: list[str] = []
    rest = list(arguments)
    while rest and rest[0].partition("=")[0] in ("--store", "--tenant", "--json"):
        takes_value = rest[0] in ("--store", "--tenant")
        leading += [rest.pop(0)]
        if takes_value and rest:
            leading += [rest.pop(0)]
    words = 2 if rest[:1] and rest[0] in GROUPS else 1
    return [*rest[:words], *leading, *rest[words:]]


def _discard_stdout() -> None:
    # The interpreter flushes stdout at exit, which would fail on the closed pipe.
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
