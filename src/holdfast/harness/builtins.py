"""Built-in tools: ask the user a question, submit a plan, request access to a path, and keep a list
of tasks. An agent has only the tools that it lists."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

from ..errors import ToolError
from .loop.tool_context import Acting
from .tools.definition import Tool, ToolContext, tool
from .tools.tasks import GivenTask, changed, completed, summary, written
from .tools.values import CallAnswer, Park, ToolResult

Selection = Literal["single_select", "multi_select"]


class Option(Struct, frozen=True, omit_defaults=True):
    """One of several answers to choose from."""

    label: str
    description: str | None = None


@tool(repeat_safe=True, category="ask", risk="safe")
async def ask_user(
    question: str,
    context: ToolContext,
    options: list[Option] | None = None,
    selection: Selection | None = None,
) -> ToolResult:
    """Ask the user a question and wait for the answer.

    Args:
        question: The question.
        options: The possible answers. Omit it to accept any text.
        selection: Whether the user can choose one option or several.
    """
    if not question.strip():
        raise ToolError(problem="the question is empty")
    if selection is not None and not options:
        raise ToolError(problem="selection needs options: pass options, or omit selection")
    if context.answer is None:
        schema = _answers(options, selection or "single_select")
        detail: dict[str, Any] = {"question": question}
        if options:
            detail["options"] = [{"label": o.label, "description": o.description} for o in options]
            detail["selection"] = selection or "single_select"
        raise Park(question, what="question", detail=detail, schema=schema)
    return _said(context.answer)


def _answers(options: list[Option] | None, selection: Selection) -> dict[str, Any]:
    if not options:
        return {"type": "string"}
    one = {"enum": [option.label for option in options]}
    return one if selection == "single_select" else {"type": "array", "items": one}


def _said(answer: CallAnswer) -> ToolResult:
    if answer.outcome == "denied":
        return ToolResult(content=f"The user declined to answer. {answer.reason or ''}".strip())
    value = answer.value
    text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    return ToolResult(content=text, data=value)


@tool(repeat_safe=True, category="ask", risk="safe")
async def submit_plan(title: str, plan: str, context: ToolContext) -> ToolResult:
    """Show the user a plan before carrying it out, and wait until it is approved or rejected.

    Args:
        title: The title of the plan.
        plan: The plan, as text.
    """
    answer = context.answer
    if answer is None:
        raise Park(title, what="plan", detail={"title": title, "plan": plan})
    shown = {"title": title, "plan": plan, "feedback": answer.reason}
    if answer.outcome == "denied":
        told = (
            f"The plan was rejected. {answer.reason}"
            if answer.reason
            else (
                "The plan was rejected. Stop, and wait for the user to say what is wrong with it."
            )
        )
        return ToolResult(content=told, data={"approved": False, **shown})
    if isinstance(context, Acting) and (mode := context.mode_after_plan) is not None:
        await context.switch_mode(mode)
    told = f"The plan was approved. {answer.reason}" if answer.reason else "The plan was approved."
    return ToolResult(content=told, data={"approved": True, **shown})


@tool(repeat_safe=True, category="ask", risk="safe")
async def request_access(path: str, reason: str, context: ToolContext) -> ToolResult:
    """Ask the user for access to a path outside the sandbox, and wait for the answer.

    Args:
        path: The path of a file or folder.
        reason: Why the access is needed.
    """
    granted = list(context.state.get("access", []))
    if path in granted:
        return ToolResult(content=f"Access to {path} was already granted.", data={"granted": True})
    answer = context.answer
    if answer is None:
        title = f"Access to {path}: {reason}"
        raise Park(title, what="access", detail={"path": path, "reason": reason})
    yes = answer.outcome == "approved" or str(answer.value or "").lower()[:1] == "y"
    if not yes:
        text = f"Access to {path} was not granted. {answer.reason or ''}".strip()
        return ToolResult(content=text, data={"granted": False})
    await context.update_state(access=[*granted, path])
    return ToolResult(content=f"Access to {path} is granted.", data={"granted": True})


@tool(repeat_safe=True, category="tasks", risk="safe")
async def task_write(tasks: list[GivenTask], context: ToolContext) -> ToolResult:
    """Replace the whole list of tasks. At most one task may be in progress.

    Args:
        tasks: All tasks, in order.
    """
    acting = _acting(context)
    return await acting.set_tasks(written(acting.tasks, tasks))


@tool(repeat_safe=True, category="tasks", risk="safe")
async def task_update(
    id: str,
    context: ToolContext,
    content: str | None = None,
    status: Literal["pending", "in_progress", "completed"] | None = None,
    active: str | None = None,
) -> ToolResult:
    """Change one task. If it is set to in progress, any other task in progress becomes pending.

    Args:
        id: The id of the task.
        content: The new text of the task.
        status: The new status.
        active: The text to show while the task is in progress.
    """
    acting = _acting(context)
    changes = {"content": content, "status": status, "active": active}
    given = {name: value for name, value in changes.items() if value is not None}
    return await acting.set_tasks(changed(acting.tasks, id, given))


@tool(repeat_safe=True, category="tasks", risk="safe")
async def task_complete(id: str, context: ToolContext) -> ToolResult:
    """Mark a task as completed.

    Args:
        id: The id of the task.
    """
    acting = _acting(context)
    return await acting.set_tasks(completed(acting.tasks, id))


@tool(repeat_safe=True, category="tasks", risk="read")
async def task_check(context: ToolContext) -> ToolResult:
    """List the tasks with their status."""
    return summary(_acting(context).tasks)


def _acting(context: ToolContext) -> Acting:
    if not isinstance(context, Acting):
        raise ToolError(problem="tasks can be changed only in a session")
    return context


ASKING: list[Tool] = [ask_user, submit_plan, request_access]
TASKS: list[Tool] = [task_write, task_update, task_complete, task_check]
