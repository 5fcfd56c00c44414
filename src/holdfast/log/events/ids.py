"""Derived ids of events and pending items. Writing the same thing twice uses the same id, so it is
stored once."""

from __future__ import annotations

import hashlib

CHILD = "!sub"  # suffix of the item by which a call waits for its sub-agent
# Prefixes of ids that are derived from another id; there may be more than one.
DERIVED = (
    "in",
    "settle",
    "done",
    "nest",
    "began",
    "grant",
    "abort",
    "reported",
    "timer",
    "contact",
    "touch",
)


def settle_id(item: str) -> str:
    """The id of the event that decides on a pending item."""
    return f"settle:{item}"


def settled_item(event: str) -> str:
    """The pending item that the event with this id decides on."""
    return event.removeprefix("settle:")


def vote_id(item: str, actor: str) -> str:
    """The id of one approver's vote on a pending item; its length does not depend on the names."""
    return "vote:" + hashlib.sha256(f"{item}\n{actor}".encode()).hexdigest()[:32]


def done_id(call: str) -> str:
    """The id of the event with the outcome of a tool call."""
    return f"done:{call}"


def done_call(event: str) -> str:
    """The tool call whose outcome is the event with this id."""
    return event.removeprefix("done:")


def nest_id(call: str) -> str:
    """The id of the event that starts a nested call."""
    return f"nest:{call}"


def input_id(key: str) -> str:
    """The id of a message with an idempotency key."""
    return f"in:{key}"


def input_key(event: str) -> str:
    """The idempotency key of the message with this id."""
    return event.removeprefix("in:")


def abort_id(key: str) -> str:
    """The id of an abort, derived from its idempotency key or from the thread of a sub-agent."""
    return f"abort:{key}"


def began_id(thread: str) -> str:
    """The id of the first event of a sub-agent's thread."""
    return f"began:{thread}"


def grant_id(thread: str, number: int) -> str:
    """The id of a grant that a sub-agent's thread inherits from its parent."""
    return f"grant:{thread}:{number}"


def reported_id(item: str) -> str:
    """The id of the event that records that a sub-agent has answered its call."""
    return f"reported:{item}"


def timer_id(seq: int) -> str:
    """The id of the message of the timer that event `seq` set."""
    return f"timer:{seq}"


def again_id(thread: str, number: int) -> str:
    """The id of an event that sends a message again in a new thread."""
    return f"again:{thread}:{number}"


def notice_id(source: str, name: str) -> str:
    """The id of a notification from a source, derived from its key or its subject."""
    return f"notice:{source}:{name}"


def child_item(call: str) -> str:
    """The pending item with which a call waits for its sub-agent."""
    return f"{call}{CHILD}"


def is_child(item: str) -> bool:
    """Whether a pending item waits for a sub-agent, not for user input."""
    return item.endswith(CHILD)


def child_call(item: str) -> str:
    """The call that waits for its sub-agent with this pending item."""
    return item.removesuffix(CHILD)
