"""``zluda trace``: record a CUDA program."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from zluda.cli.say import say
from zluda.trace.presets import PRESETS


@click.command("trace", context_settings={"allow_interspersed_args": False})
@click.option("-o", "output", type=click.Path(path_type=Path), default=Path("trace.bin"), show_default=True)
@click.option(
    "--capture",
    type=click.Choice(["calls", "outputs", "full"]),
    default="outputs",
    show_default=True,
    help="calls: no memory but what the host sends; outputs: also what each launch changed; "
    "full: also what had changed before it.",
)
@click.option(
    "--preset",
    type=click.Choice(PRESETS),
    help="Set what this framework needs so that its kernels' PTX is on record.",
)
@click.option("--ptx-jit", is_flag=True, help="Have the driver compile PTX where machine code is beside it.")
@click.option(
    "--follow-children/--no-follow-children",
    default=True,
    show_default=True,
    help="Record the processes that the program starts too, each in a file of its own.",
)
@click.option("--attach", "pid", type=int, metavar="PID", help="Record a process that is running.")
@click.option("--quiet", is_flag=True, help="Say nothing when all went well.")
@click.argument("app", nargs=-1, type=click.UNPROCESSED)
def command(
    output: Path,
    capture: str,
    preset: str | None,
    ptx_jit: bool,
    follow_children: bool,
    pid: int | None,
    quiet: bool,
    app: tuple[str, ...],
) -> None:
    """Record what a program asks of the CUDA driver, and the memory its kernels change.

    The exit status is the program's own (128 + signal); 2 if it could not be started or nothing was recorded.

    Example: zluda trace -o saxpy.bin ./saxpy 4096
    """
    from zluda.report.words import plural
    from zluda.trace.session import record

    if (pid is None) == (not app):
        raise click.UsageError("one of a program to start and --attach PID is needed")
    if pid is not None:
        if preset is not None or ptx_jit:
            raise click.UsageError("--preset and --ptx-jit are for programs that are started")
        from zluda.trace.attach import attach

        app = (f"process {pid}",)
        outcome = attach(pid, output, capture=capture, follow_children=follow_children, note=say)
    else:
        outcome = record(
            app,
            output,
            capture=capture,
            preset=preset,
            ptx_jit=ptx_jit,
            follow_children=follow_children,
            note=say,
        )
    for problem in outcome.problems:
        say(problem)
    if not outcome.calls and not outcome.recovered and not outcome.children:
        if outcome.status > 128:
            say(_end(outcome.status - 128, outcome.open_call))
        if not outcome.problems:
            say(f"nothing was recorded: {app[0]} made no CUDA driver call")
        sys.exit(2)
    if outcome.status > 128:
        say(_end(outcome.status - 128, outcome.open_call))
    if not quiet:
        if outcome.calls:
            counted = f"{plural(outcome.calls, 'call')}, {plural(outcome.launches, 'launch', 'launches')}"
            say(f"{output}: {counted}")
        elif outcome.recovered:
            say(f"{output}: recording ended early; what it had got by then is on record")
        for child in outcome.children:
            say(f"{child}: a child process")
        if outcome.index is not None:
            say(f"{outcome.index}: which trace is whose")
    sys.exit(outcome.status)


def _end(number: int, open_call: tuple[int, str] | None) -> str:
    import signal

    try:
        name = signal.Signals(number).name
    except ValueError:
        name = f"signal {number}"
    place = f" in call {open_call[0]}, {open_call[1]}" if open_call else ""
    return f"the program was ended by {name}{place}; the trace is complete up to there"
