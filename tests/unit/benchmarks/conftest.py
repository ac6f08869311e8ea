"""The benchmarks are a package at the repository's root, which only ``python -m pytest`` puts on the path."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))
