"""The ``zluda`` command: one module a verb, imported when that verb is asked for."""

from __future__ import annotations

import gc
import importlib
import io
import os
import sys
from typing import Any, NoReturn

import click

import zluda
from zluda.cli.say import say

_INTERRUPTED = 130  # 128 + SIGINT, as shells have it

# verb → (module, one line of help). The module defines `command`, a click command of the verb's name.
VERBS = {
    "trace": ("zluda.cli.trace", "record a CUDA program on an NVIDIA host"),
    "replay": ("zluda.cli.replay", "replay a trace on a device and compare every launch with the record"),
    "isolate": ("zluda.cli.isolate", "say which layer is at fault where a trace does not replay as recorded"),
    "compile": ("zluda.cli.compile", "compile PTX for a target: LLVM IR, assembly, objects, code objects"),
    "precompile": (
        "zluda.cli.precompile",
        "compile all kernels of traces, programs, libraries into the cache",
    ),
    "check": ("zluda.cli.check", "say what of a file would not translate or replay, and why"),
    "cache": ("zluda.cli.cache", "look into the kernel cache, empty it, take it elsewhere"),
    "doctor": ("zluda.cli.doctor", "say whether this machine is fit, and if not what to install"),
    "diff": ("zluda.cli.diff", "compare two traces or replays"),
    "info": ("zluda.cli.info", "summarise a trace"),
    "dump": ("zluda.cli.dump", "print a trace's calls, launches, modules or memory"),
    "trim": ("zluda.cli.trim", "cut some calls out of a trace, with the state before them"),
    "extract": ("zluda.cli.extract", "one launch of a trace as a file of its own"),
    "share": ("zluda.cli.share", "the guilty launch as a small trace, with a block for the bug report"),
    "strip": ("zluda.cli.strip", "a trace without machine code, contents or names, to share"),
    "convert": (
        "zluda.cli.convert",
        "a trace as JSON lines and back, as a timeline; kernel archives as traces",
    ),
    "corpus": ("zluda.cli.corpus", "the programs that are recorded, and recording them again"),
    "matrix": ("zluda.cli.matrix", "a corpus of traces over devices, night by night: run, compare, report"),
    "recover": ("zluda.cli.recover", "what is left of a trace that was cut off or damaged"),
}


_BRIEF = {"compile"}
"""Verbs that are over before garbage matters: collecting it takes a fifth of the time of an empty kernel."""


class _ReaderGone(Exception):
    """Whoever read standard output has closed it."""


class _LazyGroup(click.Group):
    """Knows every verb's name and help without importing any verb's module."""

    def invoke(self, ctx: click.Context) -> Any:
        # Click would exit with 1, which is a verdict: "something differs".
        try:
            try:
                return super().invoke(ctx)
            finally:
                sys.stdout.flush()
        except BrokenPipeError as error:
            raise _ReaderGone from error

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
@click.pass_context
def command(context: click.Context) -> None:
    """Know, kernel by kernel, whether a CUDA program is right on another device.

    Example: zluda replay corpus/saxpy/trace.bin --device cpu
    """
    from zluda import config

    if context.invoked_subcommand != "doctor":  # which tells of wrong settings among the rest
        config.load()


def main() -> None:
    """Run the command line. Whatever a person or the system did wrong is one line on standard error and
    status 2.
    """
    if _BRIEF.isdisjoint(sys.argv[1:2]):
        _main()
    gc.disable()
    try:
        _main()
    except SystemExit as ended:
        _leave(ended)


def _leave(ended: SystemExit) -> NoReturn:
    """End with the status at once: nothing is left to be put in order, and Python would do so object by
    object.
    """
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:
        raise ended from None  # Python says what it could not write
    os._exit(ended.code if isinstance(ended.code, int) else 0 if ended.code is None else 1)


def _main() -> NoReturn:
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal that has no ✓ gets \\u2713
            stream.reconfigure(errors="backslashreplace")
    try:
        sys.exit(command.main(prog_name="zluda", standalone_mode=False))
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        sys.exit(2)
    except click.UsageError as error:
        verb = error.ctx.command_path if error.ctx is not None else "zluda"
        _fail(f"{error.format_message()} (see {verb} --help)")
    except click.ClickException as error:
        _fail(error.format_message())
    except zluda.Error as error:
        _fail(error)
    except _ReaderGone:
        _drop_output()
        sys.exit(2)
    except OSError as error:
        _drop_output()
        _fail(f"{error.filename or 'output'}: {error.strerror or error}")
    except (KeyboardInterrupt, click.Abort):
        say("interrupted")
        sys.exit(_INTERRUPTED)


def _fail(message: object) -> NoReturn:
    say(message)
    sys.exit(2)


def _drop_output() -> None:
    """Nothing more can be written: keep Python from trying once more at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    main()
