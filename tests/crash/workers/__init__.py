"""Programs for processes of their own: `python -m tests.crash.workers.NAME`."""
