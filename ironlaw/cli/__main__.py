"""``python -m ironlaw.cli`` is the command ``ironlaw``."""

from ironlaw.cli import main

main()
