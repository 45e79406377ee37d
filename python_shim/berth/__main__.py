"""python -m berth: the program `berth`, and `run`."""

import sys

from berth._program import main

sys.exit(main())
