"""`python -m holdfast` is `holdfast`."""

import sys

from .cli import main

sys.exit(main())
