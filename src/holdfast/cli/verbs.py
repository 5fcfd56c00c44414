"""The table of verbs, with their sections and summaries. Imports nothing, so that `holdfast --help`
starts fast.
"""

from __future__ import annotations

HELP = """Durable sessions for AI agents: chat, approve tool calls, inspect and maintain sessions.

```
holdfast chat
holdfast sessions --store sqlite:shop.db
holdfast show customer-42
holdfast search 'order_4711 "late delivery"' --since 7d
holdfast VERB --help
```
"""
SECTIONS = (RUNNING, READING, LIFE, UPKEEP, TRYING) = (
    "Running",
    "Reading",
    "Life cycle",
    "Maintenance",
    "Getting started",
)
# Each verb with its section, its function and its summary. The function is imported when its verb
# is used, so that a command starts fast. The summary is the first line of its docstring.
VERBS: dict[str, tuple[str, str, str]] = {
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
    "adopt": (RUNNING, "adopt:adopt", "Assign an agent to a session that an agent SDK wrote."),
    "rewind": (RUNNING, "rewind:rewind", "Rewind a conversation to an earlier event."),
    "resume": (RUNNING, "resume:resume", "Resume the unfinished sessions of an agent."),
    "serve": (RUNNING, "serve:serve", "Serve agents over HTTP until Ctrl-C."),
    "console": (RUNNING, "console:console", "Serve the web console of a store until Ctrl-C."),
    "mcp": (RUNNING, "mcp:mcp", "Serve the sessions of a server to an MCP client, over stdio."),
    "token": (RUNNING, "token:token", "Print the local token of a server on this machine."),
    "sessions": (READING, "sessions:sessions", "List sessions, most recently active first."),
    "search": (READING, "search:search", "Search the text of all sessions, newest first."),
    "show": (READING, "show:show", "Show a session: its state and its latest events."),
    "transcript": (READING, "transcript:transcript", "Print the conversation of a session."),
    "tail": (READING, "tail:tail", "Show the latest events of a session and follow new ones."),
    "sweep": (LIFE, "sweep:sweep", "Suspend idle sessions and expire long-suspended ones."),
    "verify": (UPKEEP, "verify:verify", "Check the integrity of a store or of one session."),
    "anchors": (
        UPKEEP,
        "verify:anchors",
        "Print the latest hash of each log, for verify --anchors.",
    ),
    "repair": (UPKEEP, "verify:repair", "Verify a store or a session, and repair damage."),
    "delete": (UPKEEP, "delete:delete", "Delete a session or one of its threads permanently."),
    "purge": (UPKEEP, "delete:purge", "Remove deleted data from the files of a store."),
    "reindex": (UPKEEP, "search:reindex", "Rebuild the search index of a store."),
    "budgets": (UPKEEP, "budgets:budgets", "List what was used of budgets, or count it again."),
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
GROUPS: dict[str, tuple[str, str, dict[str, str]]] = {
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
    "schedules": (
        RUNNING,
        """Manage the recurring schedules of a session: messages that are sent again and again.

```
holdfast schedules set customer-42 check --message "Anything new?" --every 15min
holdfast schedules list customer-42
```
""",
        {
            "list_": "List the schedules of a session.",
            "set_": "Send a message to a session again and again.",
            "pause": "Stop a schedule until it is resumed.",
            "resume": "Resume a paused schedule with its next time after now.",
            "remove": "Remove a schedule. Messages that it has sent stay.",
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
    "webhooks": (
        RUNNING,
        """Manage webhook endpoints, which get events of sessions over HTTP, and deliver to them.

```
holdfast webhooks add https://example.com/hooks --kind run.finished
holdfast webhooks list
holdfast webhooks run
```
""",
        {
            "add": "Add an endpoint and print its secret once.",
            "list_": "List the endpoints of the tenant, newest first, without their secrets.",
            "test_": "Send a test delivery now and show what the receiver answered.",
            "redeliver": "Deliver dead letters again, or all events of a session or since a time.",
            "rotate": "Add a new secret to an endpoint and print it once.",
            "remove": "Remove an endpoint with its secrets and positions.",
            "run": "Deliver to the endpoints of the tenant until Ctrl-C.",
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
        """Manage the keys of an encrypted store. A vault is a TOML file with the master keys; pass
its path in the store URL.

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
