"""Entry point: `python -m holdfast` runs the command `holdfast`."""

import sys

from .cli import main

sys.exit(main())
