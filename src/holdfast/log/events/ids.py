"""Ids of events and pending items that are derived from other ids. If the same event is written
twice, both have the same id, so it is stored once."""

from __future__ import annotations

import hashlib

BUDGET = "budget:"  # prefix of the item that asks an operator to extend a budget
CHILD = "!sub"  # suffix of the item by which a call waits for its sub-agent
# Prefixes of ids that are derived from another id; there may be more than one.
DERIVED = (
    "in",
    "settle",
    "done",
    "redone",
    "nest",
    "began",
    "grant",
    "abort",
    "rewind",
    "reported",
    "timer",
    "contact",
    "touch",
    "tick",
    "unscheduled",
    "charge",
    "extend",
    "budget",
    "warned",
    "asked",
    "detached",
)


def settle_id(item: str) -> str:
    """Return the id of the event that decides on a pending item."""
    return f"settle:{item}"


def settled_item(event: str) -> str:
    """Return the pending item that the event with this id decides on."""
    return event.removeprefix("settle:")


def vote_id(item: str, actor: str) -> str:
    """Return the id of one approver's vote on a pending item; its length does not depend on the
    names."""
    return "vote:" + hashlib.sha256(f"{item}\n{actor}".encode()).hexdigest()[:32]


def done_id(call: str, rewound: int | None = None) -> str:
    """Return the id of the event with the outcome of a tool call. After a rewind the outcome may be
    recorded again. Its id is then derived from `rewound`, the number of the latest rewind
    (`State.rewound`), because the first id is already in the log."""
    return f"done:{call}" if rewound is None else f"redone:{rewound}:{call}"


def done_call(event: str) -> str:
    """Return the tool call whose outcome is recorded by the event with this id."""
    again = event.split(":", 2)
    if again[0] == "redone" and len(again) == 3:
        return again[2]
    return event.removeprefix("done:")


def nest_id(call: str) -> str:
    """Return the id of the event that starts a nested call."""
    return f"nest:{call}"


def input_id(key: str) -> str:
    """Return the id of a message with an idempotency key."""
    return f"in:{key}"


def input_key(event: str) -> str:
    """Return the idempotency key of the message with this id."""
    return event.removeprefix("in:")


def abort_id(key: str) -> str:
    """Return the id of an abort, derived from its idempotency key or from the thread of a
    sub-agent."""
    return f"abort:{key}"


def rewind_id(key: str) -> str:
    """Return the id of a rewind with an idempotency key."""
    return f"rewind:{key}"


def began_id(thread: str) -> str:
    """Return the id of the first event of a sub-agent's thread."""
    return f"began:{thread}"


def grant_id(thread: str, number: int) -> str:
    """Return the id of a grant that a sub-agent's thread inherits from its parent."""
    return f"grant:{thread}:{number}"


def reported_id(item: str) -> str:
    """Return the id of the event that records that a sub-agent has answered its call."""
    return f"reported:{item}"


def timer_id(seq: int) -> str:
    """Return the id of the message of the timer that event `seq` set."""
    return f"timer:{seq}"


def tick_id(seq: int, due: int) -> str:
    """Return the id of the message that the schedule of event `seq` sends for the time `due`."""
    return f"tick:{seq}:{due}"


def unscheduled_id(seq: int) -> str:
    """Return the id of the event that removes the schedule of event `seq`."""
    return f"unscheduled:{seq}"


def unscheduled_seq(event: str) -> int | None:
    """Return the number of the event that set the schedule which the event with this id removes."""
    seq = event.removeprefix("unscheduled:")
    return int(seq) if seq.isascii() and seq.isdigit() and len(seq) < 20 else None


def again_id(thread: str, number: int) -> str:
    """Return the id of an event that repeats a message in a new thread."""
    return f"again:{thread}:{number}"


def notice_id(source: str, name: str) -> str:
    """Return the id of a notification from a source, derived from the notification's key or
    subject."""
    return f"notice:{source}:{name}"


def child_item(call: str) -> str:
    """Return the id of the pending item with which a call waits for its sub-agent."""
    return f"{call}{CHILD}"


def is_child(item: str) -> bool:
    """Return whether a pending item waits for a sub-agent, not for user input."""
    return item.endswith(CHILD)


def child_call(item: str) -> str:
    """Return the call that waits for its sub-agent with this pending item."""
    return item.removesuffix(CHILD)


def charge_id(source: str) -> str:
    """Return the id of the event that counts a model call, derived from its message, or a run."""
    return f"charge:{source}"


def is_budget(item: str) -> bool:
    """Return whether a pending item asks an operator to extend a budget."""
    return item.startswith(BUDGET)


def extend_id(item: str) -> str:
    """Return the id of the event that extends a budget, derived from the pending item."""
    return f"extend:{item}"


def warned_id(run: str | None, budget: str, measure: str) -> str:
    """Return the id of the event with which a run warns that a budget is nearly used up."""
    return f"warned:{run}:{budget}:{measure}"


def asked_id(item: str) -> str:
    """Return the id of the event that asks an operator to extend a budget."""
    return f"asked:{item}"


def detached_id(item: str) -> str:
    """Return the id of the message with the result of a detached sub-agent."""
    return f"detached:{item}"
