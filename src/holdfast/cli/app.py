"""The table of verbs. Runs a command line, reports its errors and returns the exit code."""

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
from .output import escape_unencodable, version

HELP = """Durable sessions for AI agents: chat, approve tool calls, inspect and maintain sessions.

```
holdfast chat
holdfast sessions --store sqlite:shop.db
holdfast show customer-42
holdfast VERB --help
```
"""
READING, UPKEEP = Group("Reading", sort_key=1), Group("Maintenance", sort_key=2)
RUNNING, LIFE = Group("Running", sort_key=0.5), Group("Life cycle", sort_key=1.5)
TRYING, OPTIONS = Group("Getting started", sort_key=3), Group("Options", sort_key=4)
# Each verb with its section, its function and its summary. The function is imported when its verb
# is used, so that a command starts fast. The summary is the first line of its docstring.
VERBS: dict[str, tuple[Group, str, str]] = {
    "chat": (RUNNING, "chat:chat", "Chat with an agent in the terminal."),
    "pending": (RUNNING, "pending:pending", "List pending approvals and questions, oldest first."),
    "approve": (RUNNING, "pending:approve", "Approve a pending tool call."),
    "deny": (RUNNING, "pending:deny", "Deny a pending tool call."),
    "answer": (
        RUNNING,
        "pending:answer",
        "Answer a question, or record the result of a call whose outcome is unknown.",
    ),
    "abort": (RUNNING, "pending:abort", "Abort the current run of a session."),
    "adopt": (RUNNING, "adopt:adopt", "Continue the session of an agent SDK with an agent."),
    "rewind": (RUNNING, "rewind:rewind", "Return a conversation to an earlier event."),
    "resume": (RUNNING, "resume:resume", "Resume the unfinished sessions of an agent."),
    "serve": (RUNNING, "serve:serve", "Serve agents over HTTP until Ctrl-C."),
    "token": (RUNNING, "token:token", "Print the local token of a server on this machine."),
    "sessions": (READING, "sessions:sessions", "List sessions, most recently active first."),
    "show": (READING, "show:show", "Show a session: its state and its latest events."),
    "tail": (READING, "tail:tail", "Show the latest events of a session and follow new ones."),
    "sweep": (LIFE, "sweep:sweep", "Suspend idle sessions and expire long-suspended ones."),
    "verify": (UPKEEP, "verify:verify", "Check the integrity of a store or of one session."),
    "anchors": (
        UPKEEP,
        "verify:anchors",
        "Print the latest hash of each log, for verify --anchors.",
    ),
    "repair": (UPKEEP, "verify:repair", "Verify, and repair what can be repaired."),
    "delete": (UPKEEP, "delete:delete", "Delete a session or one of its threads permanently."),
    "purge": (UPKEEP, "delete:purge", "Remove deleted data from the files of a store."),
    "copy": (UPKEEP, "copy:copy", "Copy or move sessions to another store."),
    "export": (UPKEEP, "export:export", "Export a session to a file."),
    "import": (UPKEEP, "import_bundle:import_", "Import a session from a file."),
    "unseal": (UPKEEP, "unseal:unseal", "Reopen a session here after a move was undone or failed."),
    "migrate": (UPKEEP, "migrate:migrate", "Migrate a store to the current schema."),
    "doctor": (UPKEEP, "doctor:doctor", "Check this installation and the store."),
    "new": (TRYING, "new:new", "Create the files of a new agent."),
    "demo": (
        TRYING,
        "demo:demo",
        "Run a demo: workers are killed, and a refund is made exactly once.",
    ),
}
# Verbs of two words. A function that would shadow a keyword or a built-in name ends in `_`.
GROUPS: dict[str, tuple[Group, str, dict[str, str]]] = {
    "session": (
        LIFE,
        """Inspect and change one session: phase, surfaces, metadata and time limits.

```
holdfast session history customer-42
holdfast session suspend customer-42 --reason "on holiday"
```
""",
        {
            "history": "Show the phase changes of a session.",
            "touch": "Mark a session as active now.",
            "suspend": "Suspend a session.",
            "resume": "Resume a suspended session.",
            "expire": "Expire a session: it accepts no more events.",
            "reopen": "Reopen an expired session.",
            "pin": "Exempt a session from sweeps and retention.",
            "unpin": "Make a session subject to sweeps and retention again.",
            "hold": "Place a session under legal hold, or lift the hold.",
            "ttl": "Show or set the time limits of a session.",
            "surfaces": "List, attach or detach the surfaces of a session.",
            "metadata": "List or change the metadata of a session.",
        },
    ),
    "person": (
        LIFE,
        """Export or erase all data of one user.

```
holdfast person export ann --out ann.jsonl
holdfast person erase ann --reason "request 12"
```
""",
        {
            "export": "Export all data of a user as JSON lines.",
            "erase": "Delete a user's sessions and erase their events in other sessions.",
        },
    ),
    "keys": (
        RUNNING,
        """Manage the API keys of a server. A key is shown once, when it is created.

```
holdfast keys create ann --scope sessions:read --scope sessions:write
holdfast keys rotate Ab3dEf6hIj9k --grace 1h
```
""",
        {
            "create": "Create a key for the tenant and print it once.",
            "list_": "List the keys of the tenant, newest first, without their secrets.",
            "revoke": "Revoke a key. Every server rejects it within five seconds.",
            "rotate": "Replace a key's secret and print the new key once.",
        },
    ),
    "bundle": (
        UPKEEP,
        """Check, inspect, compare, replay and convert bundle files. No store is needed.

```
holdfast bundle validate customer-42.zip
holdfast bundle replay customer-42.zip --agent shop:support
```
""",
        {
            "validate": "Check a bundle: format, hashes, sizes, events and secrets.",
            "inspect": "Show what is in a bundle.",
            "diff_": "Compare two bundles.",
            "replay_": "Replay a recorded session and report the first divergence.",
            "convert": "Convert between bundles, Harn bundles and Claude Code transcripts.",
            "schema": "Print the JSON Schema of bundles, write it, or compare it with a file.",
        },
    ),
    "vault": (
        UPKEEP,
        """Manage the keys of an encrypted store. A vault is a TOML file with the master keys; name
it in the store's URL.

```
holdfast vault new 2026-11
holdfast vault list --store 'sqlite:shop.db?vault=vault.toml'
holdfast vault reseal --store 'sqlite:shop.db?vault=vault.toml'
```
""",
        {
            "new": "Print a new vault with one master key.",
            "list_": "List the data keys of all tenants, with the master key of each.",
            "reseal": "Re-encrypt all data keys with the first master key of the vault.",
        },
    ),
    "claude": (
        UPKEEP,
        """Import and export transcripts of the Claude Code CLI.

```
holdfast claude import
holdfast claude export ~/restored
```
""",
        {
            "import_": "Import transcripts, including transcripts of sub-agents, into the store.",
            "export": "Export sessions as transcript files of the Claude Code CLI.",
        },
    ),
}
INTERRUPTED, BROKEN_PIPE = 130, 141  # what a shell reports after SIGINT and SIGPIPE


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

    for place, (name, (section, path, summary)) in enumerate(VERBS.items()):
        help = None if name == wanted else summary
        app.command(f"holdfast.cli.{path}", name=name, help=help, group=section, sort_key=place)
    for place, (group, (section, about, verbs)) in enumerate(GROUPS.items(), len(VERBS)):
        part = App(name=group, help=about, help_format="markdown", group=section, sort_key=place)
        app.command(part)
        for at, (function, summary) in enumerate(verbs.items()):
            name = function.rstrip("_")
            help = None if f"{group} {name}" == wanted else summary
            part.command(f"holdfast.cli.{group}:{function}", name=name, help=help, sort_key=at)
    for flag in ("--help", "--version"):
        app[flag].group = OPTIONS
    return app


def _default(value: object) -> str | None:
    # Defaults such as "False" and "[]" tell a reader nothing.
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
        # The list of commands is left to --help.
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
    """Return the message of a usage error. Unclear messages of the parser are reworded."""
    match error:
        case UnusedCliTokensError(unused_tokens=[first, *_]):
            hint = "; name the file with --out FILE" if verb == "export" else ""
            return f"unexpected argument {first!r}{hint}"
        case MissingArgumentError(argument=argument) if argument is not None:
            return f"{verb} needs {argument.name}"
    return str(error)


def _verb(tokens: Sequence[str]) -> str | None:
    """Return the verb. It has two words if the first is the name of a group."""
    words = list(itertools.takewhile(lambda word: not word.startswith("-"), tokens))
    return " ".join(words[: 2 if words[0] in GROUPS else 1]) if words else None


def _options(app: App, verb: str | None) -> dict[str, str]:
    """Return the arguments of a verb by parameter name, as they are typed: `--thread`, `SESSION`.
    The store is omitted, because it may come from the environment."""
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
