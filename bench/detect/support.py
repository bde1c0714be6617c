"""What is shared with the tests: seeding of faults, and writing traces (``tests/support``)."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_SUPPORT = str(ROOT / "tests" / "support")
if _SUPPORT not in sys.path:
    sys.path.append(_SUPPORT)

from container_writer import Entry as FatbinEntry  # noqa: E402 (these are found by the lines above)
from container_writer import fatbin  # noqa: E402
from seeding import Change, environment  # noqa: E402
from trace_builder import TraceBuilder  # noqa: E402

__all__ = ["ROOT", "Change", "FatbinEntry", "TraceBuilder", "environment", "fatbin"]
