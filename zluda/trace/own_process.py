"""How the recorder starts processes of its own."""

from __future__ import annotations

import sys
from pathlib import Path

_BOOT = (
    "import importlib, sys; sys.path.insert(0, sys.argv.pop(1)); "
    "importlib.import_module(sys.argv.pop(1)).main()"
)


def command_line(module: str, *arguments: str) -> list[str]:
    """Executes ``module.main()`` of this very package, with the arguments in ``sys.argv[1:]``.

    The environment stays as it is, since the application inherits it; and whatever lies in the current
    directory is not imported (``-P``).
    """
    package_root = Path(__file__).resolve().parents[2]
    return [sys.executable, "-P", "-c", _BOOT, str(package_root), module, *arguments]
