"""What the command line says beside its results: single lines on standard error."""

from __future__ import annotations

import sys


def say(message: object) -> None:
    """One line, whatever a trace or a file name put into the message."""
    from zluda.tracefile.text import printable

    print(f"zluda: {printable(' '.join(str(message).split()))}", file=sys.stderr)
