"""`zluda isolate`: the launch that went wrong, the layer at fault, and the first instruction that differs."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, NoReturn

import click

from zluda.cli.progress import progress_bar
from zluda.cli.say import say
from zluda.cli.seconds import Seconds

if TYPE_CHECKING:
    from zluda.diff.results import LaunchResult, ReplayResult
    from zluda.isolate.explain import Explanation
    from zluda.isolate.reduce.case import Case
    from zluda.tracefile import Trace

_SECONDS = 120.0
"""How long ``--reduce`` looks."""


@click.command(name="isolate")
@click.argument("file", metavar="FILE")
@click.option("--launch", type=click.IntRange(0), metavar="N", help="This call; else the first that fails.")
@click.option(
    "--device", "-d", metavar="DEVICE", help="Where it goes wrong (default: ZLUDA_DEVICE, else auto)."
)
@click.option("--numerics", metavar="KIND", help="As for `zluda replay`.")
@click.option(
    "--contract", type=click.Choice(["auto", "on", "off"]), default="auto", help="As for `zluda replay`."
)
@click.option("--time-limit", type=Seconds(), metavar="SECONDS", help="As for `zluda replay`.")
@click.option("--reduce", "folder", metavar="FOLDER", help="Make the launch small, and write it to FOLDER.")
@click.option("--seconds", type=Seconds(), metavar="SECONDS", help="How long --reduce looks (default 120).")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(
    file: str,
    launch: int | None,
    device: str | None,
    numerics: str | None,
    contract: str,
    time_limit: float | None,
    folder: str | None,
    seconds: float | None,
    as_json: bool,
) -> None:
    """Say which layer is at fault where FILE does not replay as recorded.

    The first launch that fails on DEVICE (or launch N) is run from its recorded inputs on every device at
    hand; what that gives, taken together, names the record, lowering, code generation, the runtime or a
    hardware unit. Then the first PTX instruction whose value differs is looked for. --reduce writes a small
    trace of the launch, its PTX and a test that fails until the fault is mended.

    Exits 0 where nothing is at fault, 1 where a layer is named, 2 where that cannot be told.

    Example: zluda isolate trace.bin --device gfx1030
    """
    from zluda import config
    from zluda.device import names
    from zluda.tracefile import open_trace

    if folder is not None:
        from zluda.isolate.reduce.repro import check_folder

        check_folder(folder)
    elif seconds is not None:
        raise click.UsageError("--seconds says how long --reduce looks")
    full = names.resolve(device or config.load().device)
    names.check_options(full, numerics=numerics, check="none", contract=contract)
    with open_trace(file) as trace:
        if launch is None:
            result = _replayed(file, full, numerics, contract, time_limit)
            suspect = _suspect(result)
        else:
            suspect = _named(trace, launch)
        if suspect is None:
            _say_nothing_fails(result, as_json=as_json)
        found = explained(trace, full, suspect, numerics, contract, time_limit, in_stream=launch is None)
        show(found, as_json=as_json)
        if folder is not None:
            reduce_found(trace, found, folder, numerics, contract, seconds or _SECONDS)
    sys.exit(status(found))


def reduce_found(
    trace: Trace, found: Explanation, folder: str, numerics: str | None, contract: str, seconds: float
) -> None:
    """Write the reduced launch to ``folder``, and say on standard error what it has come to.

    What is right is what the instruction was found against, else the CPU.
    """
    from zluda.errors import Error
    from zluda.isolate.reduce import reduce_launch

    result = found.result
    if result is None or result.kind != "launch":
        raise Error("--reduce: only a launch can be reduced")
    difference = found.answer.difference

    def tell(what: str, case: Case) -> None:
        if sys.stderr.isatty():
            say(f"reducing: {what}; {case.instructions} instructions, {case.threads} threads")

    reduced = reduce_launch(
        trace,
        result.call,
        "cpu" if difference is None else difference.device_a,
        found.device,
        folder,
        numerics_wrong=numerics,
        contract=contract,
        seconds=seconds,
        progress=tell,
    )
    left = f"{reduced.instructions[0]} of {reduced.instructions[1]} PTX instructions"
    threads = f"{reduced.threads[0]} of {reduced.threads[1]} threads"
    say(f"reduced to {left}, {threads}: {reduced.folder}")


def explained(
    trace: Trace,
    device: str,
    suspect: LaunchResult,
    numerics: str | None,
    contract: str,
    time_limit: float | None,
    *,
    in_stream: bool,
) -> Explanation:
    """The layer and the instruction for one suspect."""
    from zluda.device import names
    from zluda.isolate.explain import explain
    from zluda.isolate.layers import isolate

    (answer,) = isolate(
        trace,
        device,
        [suspect],
        numerics=numerics,
        contract=contract,
        time_limit=time_limit,
        in_stream=in_stream,
        report=_tell,
    )
    return explain(trace, device, names.chosen_numerics(device, numerics), answer, contract=contract)


def show(found: Explanation, *, as_json: bool) -> None:
    print(json.dumps(found.to_json()) if as_json else "\n".join(found.lines()), flush=True)


def status(found: Explanation) -> int:
    """The exit status: 0 nothing is at fault, 1 a layer is, 2 it cannot be told."""
    from zluda.diff.blame import Layer

    layer = found.answer.blame.layer
    return 1 if layer.named else 2 if layer is Layer.UNKNOWN else 0


def _tell(text: str) -> None:
    if sys.stderr.isatty():
        say(f"running it on {text}")


def _suspect(result: ReplayResult) -> LaunchResult | None:
    """The first that fails; else the first that is not translated, which is nobody else's fault either."""
    from zluda.isolate.layers.search import not_run

    first = result.first_divergence
    return not_run(result.results) if first is None else first.result


def _named(trace: Trace, launch: int) -> LaunchResult:
    from zluda.isolate.layers.search import suspect_of

    return suspect_of(trace, launch)


def _say_nothing_fails(result: ReplayResult, *, as_json: bool) -> NoReturn:
    """What a replay gave in which nothing fails; exits as that replay does."""
    from zluda.report import words

    status = result.exit_status()
    layer = "cannot tell" if status else "none"
    text = words.headline(result)
    told = {"trace": result.trace, "device": result.device, "layer": layer, "reason": text}
    print(json.dumps(told) if as_json else f"nothing fails: {text}")
    sys.exit(status)


def _replayed(
    file: str, device: str, numerics: str | None, contract: str, time_limit: float | None
) -> ReplayResult:
    import zluda

    with progress_bar(file, "calls") as progress:
        return zluda.replay(
            file,
            device=device,
            numerics=numerics,
            contract=contract,
            time_limit=time_limit,
            progress=progress,
        )
