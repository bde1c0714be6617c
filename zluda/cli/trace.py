"""``zluda trace``: record a CUDA program."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from zluda.cli.say import say
from zluda.cli.seconds import Seconds
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
    "--timing",
    type=click.Choice(["events", "off"]),
    default="events",
    show_default=True,
    help="events: the GPU time of each launch, by two events around it on its stream.",
)
@click.option(
    "--queries",
    is_flag=True,
    help="Also calls that only ask, as cuPointerGetAttribute: most of a framework's.",
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
@click.option(
    "--kernel", metavar="REGEX", help="Record the memory only of launches of these kernels: --kernel gemm."
)
@click.option(
    "--launches",
    metavar="NUMBERS",
    help="Only of these launches, counted from 0: --launches 100-200 or 7,500-,0-99/10.",
)
@click.option(
    "--sample",
    type=int,
    metavar="N",
    help="Only of the first N launches of each kernel in each shape: --sample 3.",
)
@click.option(
    "--start-on",
    metavar="MARKER",
    help="Only from this driver call or NVTX range on: --start-on cuProfilerStart, nvtx:step#3.",
)
@click.option(
    "--stop-on",
    metavar="MARKER",
    help="Only up to this driver call, or the end of this NVTX range: --stop-on cuProfilerStop, nvtx:step#5."
    "  [default: what ends what --start-on names]",
)
@click.option(
    "--budget",
    metavar="SIZE",
    help="Stop recording memory, not calls, when the trace has this size: --budget 2GB.",
)
@click.option(
    "--redact",
    is_flag=True,
    help="Record digests in place of what memory holds, for sharing: zluda trace --redact ./app.",
)
@click.option(
    "--verify/--no-verify",
    default=True,
    show_default=True,
    help="Replay the trace on the same GPU twice, and keep in it what varies (not with --attach).",
)
@click.option(
    "--verify-limit",
    type=Seconds(),
    default=300,
    show_default=True,
    metavar="SECONDS",
    help="How long that may take: --verify-limit 60.",
)
@click.option("--attach", "pid", type=int, metavar="PID", help="Record a process that is running.")
@click.option("--quiet", is_flag=True, help="Say nothing when all went well.")
@click.argument("app", nargs=-1, type=click.UNPROCESSED)
def command(
    output: Path,
    capture: str,
    timing: str,
    queries: bool,
    preset: str | None,
    ptx_jit: bool,
    follow_children: bool,
    kernel: str | None,
    launches: str | None,
    sample: int | None,
    start_on: str | None,
    stop_on: str | None,
    budget: str | None,
    verify: bool,
    verify_limit: float,
    redact: bool,
    pid: int | None,
    quiet: bool,
    app: tuple[str, ...],
) -> None:
    """Record what a program asks of the CUDA driver, and the memory its kernels change.

    The exit status is the program's own (128 + signal); 2 if it could not be started or nothing was recorded.

    Example: zluda trace -o saxpy.bin ./saxpy 4096
    """
    from zluda.report.words import plural
    from zluda.trace.choice import Choice
    from zluda.trace.session import record

    choice = Choice.parse(
        kernel=kernel,
        launches=launches,
        sample=sample,
        start_on=start_on,
        stop_on=stop_on,
        budget=budget,
        redact=redact,
    )
    if (pid is None) == (not app):
        raise click.UsageError("one of a program to start and --attach PID is needed")
    if pid is not None:
        if preset is not None or ptx_jit:
            raise click.UsageError("--preset and --ptx-jit are for programs that are started")
        from zluda.trace.attach import attach

        app = (f"process {pid}",)
        outcome = attach(
            pid,
            output,
            capture=capture,
            timing=timing,
            queries=queries,
            follow_children=follow_children,
            choice=choice,
            note=say,
        )
    else:
        outcome = record(
            app,
            output,
            capture=capture,
            timing=timing,
            queries=queries,
            preset=preset,
            ptx_jit=ptx_jit,
            follow_children=follow_children,
            choice=choice,
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
    if verify and pid is None:  # a program that was attached to may go on, and need the GPU for itself
        own = [output] if outcome.calls or outcome.recovered else []
        _verify([*own, *outcome.children], verify_limit, quiet=quiet)
    sys.exit(outcome.status)


def _verify(traces: list[Path], limit: float, *, quiet: bool) -> None:
    """Have each trace prove itself, all of them within the limit; say what came of it."""
    import time

    from zluda.cli.progress import progress_bar
    from zluda.errors import Error
    from zluda.replay.proof import prove
    from zluda.report.proof import sentence

    end = time.monotonic() + limit
    for trace in traces:
        try:
            with progress_bar(f"{trace}: proving", "calls") as progress:
                proof = prove(trace, limit=max(end - time.monotonic(), 0), progress=progress)
        except Error as error:  # the program's status is not ours to change
            say(error)
            continue
        except Exception as error:  # nor by a fault of ours, which is said and not hidden
            say(f"{trace}: not proved: a fault in zluda, please report it: {error!r}")
            continue
        if not quiet or (proof.done and not proof.holds):
            say(f"{trace}: {sentence(proof)}")


def _end(number: int, open_call: tuple[int, str] | None) -> str:
    import signal

    try:
        name = signal.Signals(number).name
    except ValueError:
        name = f"signal {number}"
    place = f" in call {open_call[0]}, {open_call[1]}" if open_call else ""
    return f"the program was ended by {name}{place}; the trace is complete up to there"
