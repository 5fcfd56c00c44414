"""What can go wrong in a run, by name: how bad it is, whether to try again, what users are told.

`classify` turns any exception into a `Fault` by its type and by where it came from, never by
its words. `public` is the fault as it leaves the program. `ErrorPolicy` is the say that an
application has in both, and in retries. Pure, but for the traceback that `classify` writes out.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random as _random
import traceback
from collections.abc import Callable, Iterator
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Struct

from ..errors import HoldfastError, InvalidValue, MissingExtra, ModelError, StoreError
from ..log.codec import check_count
from ..redact import Redactor, describe
from .tools.values import clean

Severity: TypeAlias = Literal["warn", "error", "fatal"]
Source: TypeAlias = Literal["run", "model", "tool", "context", "storage", "sandbox", "runtime"]
Category: TypeAlias = Literal[
    "run", "model", "tool", "approval", "context", "storage", "sandbox", "runtime"
]

WAIT = 60.0  # seconds that a provider may ask us to wait
TRACE = 20_000  # characters of a traceback
WORDS = 20_000  # characters of what an error says


class FaultKind(Struct, frozen=True):
    """What is true of every fault with one code."""

    category: Category
    severity: Severity
    recoverable: bool
    retryable: bool
    public_message: str


FAULT_CODES: dict[str, FaultKind] = {
    "run_failed": FaultKind("run", "fatal", False, False, "The run failed."),
    "run_aborted": FaultKind("run", "warn", False, False, "The run was stopped."),
    "limit_steps": FaultKind("run", "warn", False, False, "The run took too many steps."),
    "limit_tokens": FaultKind("run", "warn", False, False, "The run used too many tokens."),
    "limit_cost": FaultKind("run", "warn", False, False, "The run cost too much."),
    "limit_time": FaultKind("run", "warn", False, False, "The run took too long."),
    "limit_size": FaultKind("run", "warn", False, False, "The model's answer was too long."),
    "no_output": FaultKind(
        "run", "error", False, False, "The model gave no answer of the wanted kind."
    ),
    "crash_loop": FaultKind("run", "fatal", False, False, "The run broke off too often."),
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
    "store_unavailable": FaultKind(
        "storage", "error", True, True, "The storage cannot be reached."
    ),
    "sandbox_failed": FaultKind("sandbox", "error", True, False, "A command could not be run."),
    "runtime_failed": FaultKind("runtime", "fatal", False, False, "Something went wrong."),
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

# Whose faults can come from where. A tool that calls a model of its own fails as a tool.
_WITHIN: dict[Source, tuple[Category, ...]] = {
    "model": ("model",),
    "tool": ("tool", "approval", "sandbox"),
    "context": ("context",),
    "storage": ("storage",),
    "sandbox": ("sandbox",),
}
# Errors of the standard library that pass, as they are met at each place.
_PASSING: dict[Source, tuple[str, str]] = {
    "model": ("model_timeout", "model_unavailable"),
    "storage": ("store_unavailable", "store_unavailable"),
}


class RunFault(Struct, frozen=True, kw_only=True):
    """One thing that went wrong. `message`, `stack` and `details` are for operators alone;
    `recoverable` says that the run goes on, `retryable` that the same call may succeed."""

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
    """How often a call is made in all, and how long to wait between: `backoff` seconds,
    doubled each time up to `cap`, of which up to the fraction `jitter` is taken off."""

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
        random: Callable[[], float] = _random.random,
        retry_after: float | None = None,
    ) -> float:
        """Seconds to wait after attempt `n`. Never less than the provider asked for, up to
        a minute; what it asks may pass the cap."""
        check_count("n", n, least=1)
        longest = max(self.cap, self.backoff)
        wait = min(longest, self.backoff * 2.0 ** min(n - 1, 64)) * (1 - self.jitter * random())
        if retry_after is not None and retry_after > 0:
            wait = max(wait, min(retry_after, WAIT))
        return wait

    def delays(self, random: Callable[[], float] = _random.random) -> Iterator[float]:
        """The waits between all attempts: one less than there are attempts."""
        return (self.delay(n, random) for n in range(1, self.times))


class Retry(Struct, frozen=True, kw_only=True):
    """How often calls of models and of the store are made."""

    model: Attempts = Attempts(2, backoff=0.5)
    storage: Attempts = Attempts(5, backoff=0.1)


Hook: TypeAlias = Callable[[BaseException, RunFault], "RunFault | dict[str, Any] | None"]


class ErrorPolicy(Struct, frozen=True, kw_only=True):
    """What an application decides about errors.

    `classify(error, fault)` may answer with another fault, or with fields to change; a
    changed `code` brings its own category, severity and so on with it.
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
            raise InvalidValue(field="context_failure", problem=problem, remedy="fail or skip")
        if hook is not None and not callable(hook):
            problem = f"is {type(hook).__name__}"
            raise InvalidValue(field="classify", problem=problem, remedy="pass a function")


DEFAULT = ErrorPolicy()
_MASK = Redactor()


def make(code: str, message: str = "", *, source: Source = "run", **fields: Any) -> RunFault:
    """A fault that no exception tells of, as a limit; the rest is what its code says, or what
    is usual at `source` where the code is the program's own."""
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
    """The fault that `error` is, where it came from `source`. Users are also told what to do, where
    our own error says that."""
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
        # Its text may hold anything; the type is enough to find it by.
        logging.getLogger("holdfast").warning(
            "the classify hook of the error policy failed: %s", type(failure).__name__
        )
        return fault


def remedy(error: BaseException) -> str | None:
    """What to do about a mistake in the configuration, as a sentence for users. It is ours alone:
    the words of a provider, or of any other exception, may hold anything."""
    if isinstance(error, MissingExtra):
        return f"Install an optional package: pip install 'holdfast[{error.extra}]'."
    said = error.remedy if isinstance(error, ModelError) else None
    return f"{said[0].upper()}{said[1:].rstrip('.')}." if said else None


def public(
    fault: RunFault, policy: ErrorPolicy = DEFAULT, redactor: Redactor | None = None
) -> RunFault:
    """The fault as users see it: in the status, in events and on streams. Even where the
    policy exposes what is inside, secrets are masked."""
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
    """Whether the same call may be made again: only what passes by itself."""
    return fault.retryable and fault.severity != "fatal" and fault.code != "run_aborted"


def retry_after(fault: RunFault) -> float | None:
    """The seconds that the provider asked to wait, if it did."""
    asked = fault.details.get("retry_after")
    return float(asked) if isinstance(asked, (int, float)) and math.isfinite(asked) else None


def context_outcome(
    policy: ErrorPolicy,
    mode_failure: Literal["fail", "skip"] | None = None,
    provider_required: bool | None = None,
    binding_required: bool | None = None,
) -> Literal["fail", "skip"]:
    """Whether a context provider that fails ends the run. It is passed over only where the
    policy allows it, and either it is not required or the mode says so too; what the mode's
    binding says of a provider counts more than what the provider says of itself."""
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
    """The code of an error of ours, or of the nearest kind of error that it is one of."""
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
    """A fault whose fields someone else gave."""

    @classmethod
    def check(cls, fields: dict[str, Any]) -> RunFault:
        found = msgspec.convert(fields, cls)
        return RunFault(**msgspec.structs.asdict(found))


def _trace(error: BaseException) -> str | None:
    if error.__traceback__ is None:
        return None
    return clean("".join(traceback.format_exception(error))[-TRACE:])
