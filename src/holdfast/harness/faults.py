"""Faults of a run: codes, severity, whether to retry, and the message for users.

`classify` converts an exception to a `RunFault` by its type and source, never by its message.
`public` returns the fault in the form that clients see. With `ErrorPolicy`, an application can
change faults, their messages and the number of retries. There is no I/O here.
"""

from __future__ import annotations

import asyncio
import logging
import math
import traceback
from collections.abc import Callable, Iterator
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Struct

from ..environment import current
from ..errors import HoldfastError, InvalidValue, MissingExtra, ModelError, StoreError
from ..log.codec import check_count
from ..redact import Redactor, describe
from .tools.values import clean

Severity: TypeAlias = Literal["warn", "error", "fatal"]
Source: TypeAlias = Literal["run", "model", "tool", "context", "storage", "sandbox", "runtime"]
Category: TypeAlias = Literal[
    "run", "model", "tool", "approval", "context", "storage", "sandbox", "runtime"
]

WAIT = 60.0  # seconds: the longest delay that a provider may ask for
TRACE = 20_000  # characters of a traceback
WORDS = 20_000  # characters of an error message


class FaultKind(Struct, frozen=True):
    """The properties that all faults with one code share."""

    category: Category
    severity: Severity
    recoverable: bool
    retryable: bool
    public_message: str


FAULT_CODES: dict[str, FaultKind] = {
    "run_failed": FaultKind("run", "fatal", False, False, "The run failed."),
    "run_aborted": FaultKind("run", "warn", False, False, "The run was stopped."),
    "limit_steps": FaultKind("run", "warn", False, False, "The run exceeded its limit of steps."),
    "limit_tokens": FaultKind("run", "warn", False, False, "The run exceeded its limit of tokens."),
    "limit_cost": FaultKind("run", "warn", False, False, "The run exceeded its cost limit."),
    "limit_time": FaultKind("run", "warn", False, False, "The run exceeded its time limit."),
    "limit_budget": FaultKind("run", "warn", False, False, "A budget is used up."),
    "limit_size": FaultKind("run", "warn", False, False, "The model's answer was too long."),
    "no_output": FaultKind(
        "run", "error", False, False, "The model gave no answer of the requested type."
    ),
    "crash_loop": FaultKind(
        "run", "fatal", False, False, "The run was abandoned after repeated crashes."
    ),
    "model_failed": FaultKind("model", "error", False, False, "The model call failed."),
    "model_rate_limited": FaultKind(
        "model", "warn", False, True, "The model is busy; try again later."
    ),
    "model_timeout": FaultKind("model", "warn", False, True, "The model did not answer in time."),
    "model_unavailable": FaultKind("model", "warn", False, True, "The model cannot be reached."),
    "tool_failed": FaultKind("tool", "error", True, False, "A tool failed."),
    "bad_arguments": FaultKind(
        "tool", "error", True, False, "A tool was called with bad arguments."
    ),
    "denied": FaultKind("approval", "warn", True, False, "A tool call was denied."),
    "context_failed": FaultKind(
        "context", "error", False, False, "The context could not be built."
    ),
    "storage_failed": FaultKind(
        "storage", "error", True, False, "The conversation could not be saved."
    ),
    "store_unavailable": FaultKind("storage", "error", True, True, "The storage is unavailable."),
    "sandbox_failed": FaultKind("sandbox", "error", True, False, "A command could not be run."),
    "runtime_failed": FaultKind("runtime", "fatal", False, False, "An internal error occurred."),
}

DEFAULTS: dict[Source, str] = {
    "run": "run_failed",
    "model": "model_failed",
    "tool": "tool_failed",
    "context": "context_failed",
    "storage": "storage_failed",
    "sandbox": "sandbox_failed",
    "runtime": "runtime_failed",
}

# The sources that each category of fault can come from. A tool that calls a model of its own fails
# as a tool.
_WITHIN: dict[Source, tuple[Category, ...]] = {
    "model": ("model",),
    "tool": ("tool", "approval", "sandbox"),
    "context": ("context",),
    "storage": ("storage",),
    "sandbox": ("sandbox",),
}
# Transient errors of the standard library, by source.
_PASSING: dict[Source, tuple[str, str]] = {
    "model": ("model_timeout", "model_unavailable"),
    "storage": ("store_unavailable", "store_unavailable"),
}


class RunFault(Struct, frozen=True, kw_only=True):
    """One fault of a run. `message`, `stack` and `details` are for operators only. `recoverable`
    means that the run continues, `retryable` that the same call may succeed if it is repeated."""

    code: str
    message: str
    public_message: str
    category: Category
    severity: Severity
    recoverable: bool
    retryable: bool = False
    source: Source = "runtime"
    name: str | None = None
    stack: str | None = None
    details: dict[str, Any] = {}


def _check_number(field: str, value: Any, most: float) -> None:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not 0 <= value <= most:
        raise InvalidValue(
            field=field, problem=f"is {value!r}", remedy=f"pass a number from 0 to {most}"
        )


class Attempts(Struct, frozen=True):
    """The number of attempts of a call, and the delay between them: `backoff` seconds, doubled each
    time up to `cap`, minus a random part of up to the fraction `jitter`.

    See [logging, errors, tracing](../logging.md).
    """

    times: int
    backoff: float = 0.25
    cap: float = 5.0
    jitter: float = 0.25

    def __post_init__(self) -> None:
        check_count("times", self.times, least=1, most=100)
        _check_number("backoff", self.backoff, 3600)
        _check_number("cap", self.cap, 3600)
        _check_number("jitter", self.jitter, 1)

    def delay(
        self,
        n: int,
        random: Callable[[], float] | None = None,
        retry_after: float | None = None,
    ) -> float:
        """Return the seconds to wait after attempt `n`: at least the delay that the provider
        requested, up to a minute, even if that exceeds `cap`."""
        check_count("n", n, least=1)
        longest = max(self.cap, self.backoff)
        part = (random or current().random.random)()
        wait = min(longest, self.backoff * 2.0 ** min(n - 1, 64)) * (1 - self.jitter * part)
        if retry_after is not None and retry_after > 0:
            wait = max(wait, min(retry_after, WAIT))
        return wait

    def delays(self, random: Callable[[], float] | None = None) -> Iterator[float]:
        """Return the delays between the attempts, in seconds: one fewer than there are attempts."""
        return (self.delay(n, random) for n in range(1, self.times))


class Retry(Struct, frozen=True, kw_only=True):
    """How often calls of models and of the store are attempted, and with which delays.

    See [logging, errors, tracing](../logging.md).
    """

    model: Attempts = Attempts(2, backoff=0.5)
    storage: Attempts = Attempts(5, backoff=0.1)


Hook: TypeAlias = Callable[[BaseException, RunFault], "RunFault | dict[str, Any] | None"]


class ErrorPolicy(Struct, frozen=True, kw_only=True):
    """How an application handles errors: what users see of them, whether failed contexts are
    skipped, and how calls are retried.

    `classify(error, fault)` may return another fault, or a dict of fields to change. If it changes
    `code`, the category, severity and other properties follow from the new code.

    ```python
    Harness(agent, error_policy=ErrorPolicy(expose_internal_errors=True))  # in development
    ```
    """

    expose_internal_errors: bool = False
    include_stack_in_status: bool = False
    close_session_on_fatal: bool = False
    context_failure: Literal["fail", "skip"] = "fail"
    classify: Hook | None = None
    retry: Retry = Retry()

    def __post_init__(self) -> None:
        hook: Any = self.classify
        if self.context_failure not in ("fail", "skip"):
            problem = f"is {self.context_failure!r}"
            raise InvalidValue(
                field="context_failure", problem=problem, remedy="use 'fail' or 'skip'"
            )
        if hook is not None and not callable(hook):
            problem = f"is {type(hook).__name__}"
            raise InvalidValue(field="classify", problem=problem, remedy="pass a function")


DEFAULT = ErrorPolicy()
_MASK = Redactor()


def make(code: str, message: str = "", *, source: Source = "run", **fields: Any) -> RunFault:
    """Create a fault that was not caused by an exception, such as an exceeded limit. Its other
    fields follow from the code, or from `source` if the application defined the code."""
    kind = FAULT_CODES.get(code) or FAULT_CODES[DEFAULTS[source]]
    return RunFault(
        **{
            "code": code,
            "message": message or kind.public_message,
            "source": source,
            **msgspec.structs.asdict(kind),
            **fields,
        }
    )


def classify(error: BaseException, *, source: Source, policy: ErrorPolicy = DEFAULT) -> RunFault:
    """Convert an exception to a fault; `source` is the component that raised it. If one of
    Holdfast's own errors has a remedy, the message for users includes it."""
    code = _code(error, source)
    hint = remedy(error)
    fault = make(
        code,
        clean(describe(error)[:WORDS]),
        public_message=" ".join(filter(None, (FAULT_CODES[code].public_message, hint))),
        source=source,
        name=type(error).__name__,
        stack=_trace(error),
        details=dict(error.fields) if isinstance(error, HoldfastError) else {},
    )
    if policy.classify is None or isinstance(error, asyncio.CancelledError):
        return fault
    try:
        return _changed(fault, policy.classify(error, fault))
    except Exception as failure:
        # The error text may contain secrets; the type is enough to find the cause.
        logging.getLogger("holdfast").warning(
            "the classify hook of the error policy failed: %s", type(failure).__name__
        )
        return fault


def remedy(error: BaseException) -> str | None:
    """Return the remedy for a configuration error, as a sentence for users. Uses only Holdfast's
    own messages, because messages of providers and other exceptions may contain secrets."""
    if isinstance(error, MissingExtra):
        return f"Install an optional package: pip install 'holdfast[{error.extra}]'."
    said = error.remedy if isinstance(error, ModelError) else None
    return f"{said[0].upper()}{said[1:].rstrip('.')}." if said else None


def public(
    fault: RunFault, policy: ErrorPolicy = DEFAULT, redactor: Redactor | None = None
) -> RunFault:
    """Return the fault in the form that users see: in the status, in events and on streams. Secrets
    are masked even if the policy exposes internal details."""
    mask = redactor or _MASK
    stack = mask.text(fault.stack) if fault.stack else None
    if policy.expose_internal_errors:
        return msgspec.structs.replace(
            fault, message=mask.text(fault.message), stack=stack, details=mask(fault.details)
        )
    return msgspec.structs.replace(
        fault,
        message=fault.public_message,
        stack=stack if policy.include_stack_in_status else None,
        name=None,
        details={},
    )


def retryable(fault: RunFault) -> bool:
    """Return whether the same call may be repeated after this fault, which must be transient."""
    return fault.retryable and fault.severity != "fatal" and fault.code != "run_aborted"


def retry_after(fault: RunFault) -> float | None:
    """Return the delay that the provider requested, in seconds, or None."""
    asked = fault.details.get("retry_after")
    return float(asked) if isinstance(asked, (int, float)) and math.isfinite(asked) else None


def context_outcome(
    policy: ErrorPolicy,
    mode_failure: Literal["fail", "skip"] | None = None,
    provider_required: bool | None = None,
    binding_required: bool | None = None,
) -> Literal["fail", "skip"]:
    """Return whether the failure of a context fails the run or is skipped. It is skipped only if
    the policy allows that, and either the context is optional or the mode skips failures.
    `binding_required` overrides `provider_required`, which says whether the context is required."""
    required = provider_required if binding_required is None else binding_required
    if policy.context_failure == "skip" and (required is False or mode_failure == "skip"):
        return "skip"
    return "fail"


def _code(error: BaseException, source: Source) -> str:
    if isinstance(error, asyncio.CancelledError):
        return "run_aborted"
    if isinstance(error, HoldfastError):
        code = _known(error)
        within = _WITHIN.get(source)
        if code is not None and (within is None or FAULT_CODES[code].category in within):
            return code
    elif source in _PASSING and isinstance(error, (TimeoutError, ConnectionError)):
        late, away = _PASSING[source]
        return late if isinstance(error, TimeoutError) else away
    return DEFAULTS[source]


def _known(error: HoldfastError) -> str | None:
    """Return the code of a Holdfast error, or of its nearest base class that has one."""
    for code in (error.code, *(vars(kind).get("code") for kind in type(error).__mro__)):
        if code in FAULT_CODES:
            return str(code)
        if code == StoreError.code:
            return "storage_failed"
    return None


def _changed(fault: RunFault, answer: RunFault | dict[str, Any] | None) -> RunFault:
    if answer is None:
        return fault
    if isinstance(answer, RunFault):
        return answer
    changes = dict(answer)
    kind = FAULT_CODES.get(changes.get("code", fault.code))
    derived = msgspec.structs.asdict(kind) if kind and "code" in changes else {}
    whole = {**msgspec.structs.asdict(fault), **derived, **changes}
    return _Strict.check(whole)


class _Strict(RunFault, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Parses a fault that an application returned; rejects unknown fields."""

    @classmethod
    def check(cls, fields: dict[str, Any]) -> RunFault:
        found = msgspec.convert(fields, cls)
        return RunFault(**msgspec.structs.asdict(found))


def _trace(error: BaseException) -> str | None:
    if error.__traceback__ is None:
        return None
    return clean("".join(traceback.format_exception(error))[-TRACE:])
