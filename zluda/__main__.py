"""The ``zluda`` command: a script, and ``python -m zluda``."""

from __future__ import annotations

import gc


def main() -> None:
    """Run the command line. What is imported for it stays: it is no garbage, and is not looked through."""
    gc.disable()
    from zluda.cli.main import main as run

    gc.freeze()
    gc.enable()
    run()


if __name__ == "__main__":
    main()
