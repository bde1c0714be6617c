"""The ``zluda`` command: one module a verb, imported when that verb is asked for."""

from __future__ import annotations

import importlib
import sys
from typing import Any

import click

import zluda

# verb → (module, one line of help). The module defines `command`, a click command of the verb's name.
VERBS = {
    "trace": ("zluda.cli.trace", "record a CUDA program on an NVIDIA host"),
    "replay": ("zluda.cli.replay", "replay a trace on a device and compare every launch with the record"),
    "compile": ("zluda.cli.compile", "compile PTX for a target: LLVM IR, assembly, objects, code objects"),
    "diff": ("zluda.cli.diff", "compare two traces or replays"),
    "info": ("zluda.cli.info", "summarise a trace"),
    "dump": ("zluda.cli.dump", "print a trace's calls, launches, modules or memory"),
}


class _LazyGroup(click.Group):
    """Knows every verb's name and help without importing any verb's module."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in VERBS:
            return None
        command: Any = importlib.import_module(VERBS[name][0]).command
        return command  # type: ignore[no-any-return]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Verbs"):
            formatter.write_dl([(name, text) for name, (_, text) in VERBS.items()])


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(zluda.__version__, prog_name="zluda")
def command() -> None:
    """Know, kernel by kernel, whether a CUDA program is right on another device.

    Example: zluda replay corpus/saxpy/trace.bin --device cpu
    """


def main() -> None:
    """Run the command line; every :class:`zluda.Error` becomes one line on standard error and status 2."""
    try:
        command.main(standalone_mode=True)
    except zluda.Error as error:
        print(f"zluda: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
