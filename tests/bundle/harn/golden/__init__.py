"""Documents of Harn's as we write them, one per mode, for a run record and for a session of ours.

    python -m tests.bundle.harn.golden

writes them anew, after a change of format that was meant.
"""
