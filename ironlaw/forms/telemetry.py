"""Keeps OpenVINO and NNCF from talking to the network.

Both report usage to an analytics service through the package ``openvino-telemetry``: without a consent
file they count as agreed, and no environment variable turns that off (``CI=true`` does, but it means other
things to other programs). Both fall back to a stub when that package cannot be imported, so it is made
impossible to import in this process. Where the user's own program has imported it before, its sender is
replaced by one that drops everything. It refuses to touch the consent file: that one is the user's.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

_PACKAGE = "openvino_telemetry"


def silence() -> None:
    """Call before ``import openvino`` or ``import nncf``; calling again is harmless."""
    loaded: Any = sys.modules.get(_PACKAGE)
    if loaded is None:
        sys.modules[_PACKAGE] = None  # type: ignore[assignment]
        return
    sender: Any = importlib.import_module(f"{_PACKAGE}.utils.sender")
    sender.TelemetrySender.send = _drop


def _drop(*_args: Any, **_kwargs: Any) -> None:
    """In place of ``TelemetrySender.send``."""
