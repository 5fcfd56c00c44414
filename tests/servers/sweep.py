"""Removes the schemas and databases of tests that are over, beside the tests that run.

A server with thousands of tables is slow, and one that is a person's own should be left as it
was found.
"""

from __future__ import annotations

import queue
import threading

from . import shared

_over: queue.SimpleQueue[str | None] = queue.SimpleQueue()
_sweepers: list[threading.Thread] = []  # one at most


def sweep() -> None:
    """What this process has got from `url` so far is not needed any more."""
    urls = list(shared.used)
    shared.used.clear()
    if urls and not _sweepers:
        _sweepers.append(threading.Thread(target=_run, name="sweeper", daemon=True))
        _sweepers[0].start()
    for url in urls:
        _over.put(url)


def finish() -> None:
    """Wait until all is swept, if the servers stay when the run is over."""
    sweep()
    if _sweepers and shared.lasting():
        _over.put(None)
        _sweepers.pop().join()


def _run() -> None:
    from . import faults  # needs the drivers, which a test without servers does not

    while (url := _over.get()) is not None:
        try:
            faults.drop(url)
        except Exception:
            continue  # a courtesy: the end of the server is the end of it all
