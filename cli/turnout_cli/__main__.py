"""`python -m turnout_cli`: the `turnout` command without its script."""

import sys

from turnout_cli.main import main

if __name__ == "__main__":
    sys.exit(main())
