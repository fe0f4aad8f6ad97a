"""`python -m ranktuner`: the menu, for launchers that start modules."""

from __future__ import annotations

import sys

from ranktuner.cli import main

sys.exit(main())
