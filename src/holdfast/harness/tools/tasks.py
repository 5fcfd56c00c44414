"""Task lists: functions that change them, and the summary that the model reads. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ...errors import ToolError
from ...log.events import Task
from .values import ToolResult

MOST = 100
SLUG = 48


class GivenTask(Struct, frozen=True, omit_defaults=True):
    """A task in the arguments of a tool call. Without an id, it keeps the id of an existing task
    with the same content, or gets a new id."""

    content: str
    status: Literal["pending", "in_progress", "completed"] = "pending"
    active: str | None = None
    id: str | None = None


def written(before: Sequence[Task], given: Sequence[GivenTask]) -> list[Task]:
    """Return the new task list. A task whose content is unchanged keeps its id."""
    if len(given) > MOST:
        raise ToolError(problem=f"{len(given)} tasks are too many: write at most {MOST}")
    busy = [task.content for task in given if task.status == "in_progress"]
    if len(busy) > 1:
        raise ToolError(problem=f"only one task may be in progress, not {len(busy)}")
    ids = _ids(before, given)
    return [
        Task(id=id, content=task.content, status=task.status, active=task.active)
        for id, task in zip(ids, given, strict=True)
    ]


def _ids(before: Sequence[Task], given: Sequence[GivenTask]) -> list[str]:
    old, new = Counter(t.content for t in before), Counter(t.content for t in given)
    known = {t.content: t.id for t in before if old[t.content] == new[t.content] == 1}
    wanted = [task.id or known.get(task.content) for task in given]
    taken = {id for id in wanted if id is not None}
    found: list[str] = []
    for id, task in zip(wanted, given, strict=True):
        if id is None or id in found:
            id = _fresh(task.content, taken)  # noqa: PLW2901
        found.append(id)
        taken.add(id)
    return found


def _fresh(content: str, taken: set[str]) -> str:
    slug = re.sub(r"[^a-z0-9]+", "_", content.lower()).strip("_")[:SLUG] or "task"
    base = f"task_{slug}"
    names = (base if n == 1 else f"{base}_{n}" for n in range(1, MOST + len(taken) + 2))
    return next(name for name in names if name not in taken)


def changed(before: Sequence[Task], id: str, changes: Mapping[str, Any]) -> list[Task]:
    """Return the list with one task changed. If that task is set to in progress, the task that was
    in progress becomes pending."""
    if not changes:
        raise ToolError(problem="no changes were passed: pass content, status or active")
    _known(before, id)
    found = []
    for task in before:
        if task.id == id:
            found.append(replace(task, **changes))
        elif changes.get("status") == "in_progress" and task.status == "in_progress":
            found.append(replace(task, status="pending"))
        else:
            found.append(task)
    return found


def completed(before: Sequence[Task], id: str) -> list[Task]:
    return changed(before, id, {"status": "completed"})


def _known(tasks: Iterable[Task], id: str) -> None:
    ids = [task.id for task in tasks]
    if id not in ids:
        raise ToolError(problem=f"task {id!r} does not exist; tasks: {', '.join(ids) or 'none'}")


def summary(tasks: Sequence[Task]) -> ToolResult:
    """Return the task list and its progress as a tool result: text for the model, and data for
    programs."""
    count = Counter(task.status for task in tasks)
    left = sorted(
        (task for task in tasks if task.status != "completed"),
        key=lambda task: task.status != "in_progress",
    )
    figures = {
        "total": len(tasks),
        "completed": count["completed"],
        "in_progress": count["in_progress"],
        "pending": count["pending"],
        "incomplete": len(left),
        "all_completed": bool(tasks) and not left,
    }
    marks = {"completed": "x", "in_progress": ">", "pending": " "}
    lines = [f"[{marks[task.status]}] {task.id}: {task.content}" for task in tasks]
    head = f"{count['completed']} of {len(tasks)} tasks are done." if tasks else "No tasks."
    data = {
        "summary": figures,
        "tasks": msgspec.to_builtins(list(tasks)),
        "incomplete": msgspec.to_builtins(left),
    }
    return ToolResult(content="\n".join([head, *lines]), data=data)
