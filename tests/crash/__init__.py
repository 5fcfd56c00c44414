"""Processes killed, frozen and raced, files cut and corrupted, disks that are full.

Each check in `checks/` is a plain function with a count: the tests here call it with a small
one, `python -m tests.soak` with the heavy one. A check returns an `Outcome` that says what was
counted and every way in which a promise was broken; what happens in another process is a module
of `workers/`.
"""
