"""`python -m holdfast.cli` is `holdfast`."""

import sys

from . import main

sys.exit(main())
