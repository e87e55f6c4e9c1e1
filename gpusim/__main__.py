"""`python -m gpusim`: the command line."""

import sys

from gpusim.cli import main

if __name__ == "__main__":
    sys.exit(main())
