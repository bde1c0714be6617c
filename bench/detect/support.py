"""What is shared with the tests: seeding of faults, and writing traces (``tests/support``)."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_SUPPORT = str(ROOT / "tests" / "support")
if _SUPPORT not in sys.path:
    sys.path.append(_SUPPORT)

from seeding import Change, environment  # noqa: E402 (it is found by the line above)
from trace_builder import TraceBuilder  # noqa: E402

__all__ = ["ROOT", "Change", "TraceBuilder", "environment"]
