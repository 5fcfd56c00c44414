"""Where the processes of this scene come from: `python -m tests.harness.session.crash.nursery`."""

from __future__ import annotations

from ...crash.nursery import serve
from .life import live

if __name__ == "__main__":
    serve(live)
