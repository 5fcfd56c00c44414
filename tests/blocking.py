"""The guard against blocking calls on the event loop, with a short look at the stack.

`blockbuster` compares the file of every frame with every exception for each call, which takes
longer than most such calls. Here each function of the stack is judged once.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any

import pytest
from blockbuster import BlockBuster, BlockingError, blockbuster, blockbuster_ctx

OTHERS, OURS, MAY_BLOCK = range(3)


@contextmanager
def guarded(package: str, *, excluded: str) -> Iterator[BlockBuster]:
    """Let a blocking call of the package on an event loop raise `BlockingError`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blockbuster, "_wrap_blocking", _wrap)
        with blockbuster_ctx(package, excluded_modules=[excluded]) as guard:
            yield guard


def _wrap(
    modules: Sequence[str],
    excluded_modules: Sequence[str],
    func: Callable[..., Any],
    func_name: str,
    can_block_functions: list[tuple[str, Iterable[str]]],
    can_block_predicate: Callable[..., bool],
) -> Callable[..., Any]:
    """What the function of this name in `blockbuster` returns."""
    package, excluded = tuple(modules), tuple(excluded_modules)
    # Equal code objects may come from different files, so a function is known by both names.
    judged: dict[tuple[str, str], int] = {}

    def judge(code: CodeType) -> int:
        file = code.co_filename
        for name, functions in can_block_functions:
            if code.co_name in functions and file.replace("\\", "/").endswith(name):
                return MAY_BLOCK
        return OURS if file.startswith(package) and not file.startswith(excluded) else OTHERS

    def blocks() -> bool:
        """Whether a function of the package is on the stack, and none that may block."""
        found = False
        frame: FrameType | None = sys._getframe(2)
        while frame:
            code = frame.f_code
            name = (code.co_filename, code.co_name)
            if (verdict := judged.get(name)) is None:
                verdict = judged[name] = judge(code)
            if verdict == MAY_BLOCK:
                return False
            found = found or verdict == OURS
            frame = frame.f_back
        return found

    skip = blockbuster._skip  # of all guarded functions: one may call another

    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if skip.value or asyncio._get_running_loop() is None:
            return func(*args, **kwargs)
        skip.value = True
        try:
            if not can_block_predicate(*args, **kwargs) and blocks():
                raise BlockingError(func_name)
            return func(*args, **kwargs)
        finally:
            skip.value = False

    return wrapper
