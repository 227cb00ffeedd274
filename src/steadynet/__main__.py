"""``python -m steadynet``."""

import sys

from steadynet.cli import main

if __name__ == "__main__":
    sys.exit(main())
