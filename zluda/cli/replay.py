"""`zluda replay`: replay traces, say what each launch was found to be, exit by the verdict."""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

import click
from click.core import ParameterSource

from zluda.cli import options
from zluda.cli.progress import progress_bar
from zluda.cli.say import say
from zluda.cli.seconds import Seconds
from zluda.cli.typed import as_typed
from zluda.errors import Error

if TYPE_CHECKING:
    from zluda.diff.results import ReplayResult

_ALONE: dict[str, frozenset[str]] = {
    "explain": frozenset({"numerics", "contract", "time_limit"}),
    "learn_noise": frozenset({"repeat"}),
}
"""Options that are questions of their own, with no replay beside them → what else goes with them."""

_WORST_FIRST = (1, 2, 0)
"""Exit statuses: something fails, something could not be told, all holds."""


@click.command(name="replay")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option(
    "--device",
    "-d",
    "devices",
    multiple=True,
    metavar="DEVICE[,DEVICE]...",
    help="cpu, gfxNNN, hip:N, cuda:N, nvptx:N or auto (default: ZLUDA_DEVICE, else auto); several at once.",
)
@click.option(
    "--mode",
    type=click.Choice(["stream", "isolated"]),
    default="stream",
    help="stream (default): a launch runs on what those before it left; isolated: on what is on record.",
)
@click.option(
    "--jobs",
    "-j",
    type=click.IntRange(1),
    default=1,
    metavar="N",
    help="Runners at once, with --mode isolated.",
)
@click.option(
    "--numerics",
    metavar="KIND",
    help="nvidia (default on cpu): bit for bit. native (default on AMD): approximate as the device does.",
)
@click.option(
    "--contract",
    type=click.Choice(["auto", "on", "off"]),
    default="auto",
    help="Which a*b+c is rounded once: as NVIDIA's assembler decides, all, none.",
)
@click.option("--output", "-o", metavar="FILE", help="Write the replayed memory as a trace.")
@click.option("--select", multiple=True, metavar="WHAT", help="17, 0-100, 0-100/2, kernel:regex or @file.")
@click.option("--allow", default="", metavar="VERDICTS", help="Accept no-ptx, unsupported or gap.")
@click.option(
    "--time-limit",
    type=Seconds(),
    metavar="SECONDS",
    help="After which a launch counts as a hang; compiling its kernel is apart.",
)
@click.option(
    "--schedule", default=0, metavar="SEED", help="Vary the order of blocks and warps (cpu, emulated GPUs)."
)
@click.option(
    "--check",
    default="none",
    metavar="WHAT",
    help="memory: on cpu and emulated GPUs, a launch that accesses what is not allocated is a crash.",
)
@options.dtypes
@click.option("--blame", is_flag=True, help="Name the layer at fault for each launch that fails.")
@click.option(
    "--explain",
    type=click.IntRange(0),
    metavar="N",
    help="Launch N on one screen, as `zluda isolate` has it.",
)
@click.option(
    "--learn-noise",
    is_flag=True,
    help="On the GPU that recorded it (cuda:N): keep in the trace what varies from run to run.",
)
@click.option("--repeat", type=click.IntRange(1), metavar="N", help="How often --learn-noise runs it: 10.")
@click.option(
    "--profile",
    is_flag=True,
    help="Where the time went, by kernel, and what to do; emulated GPUs: a model of it.",
)
@click.option("--html", metavar="PAGE", help="Write the results as one self-contained page.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a file.")
def command(
    files: tuple[str, ...],
    devices: tuple[str, ...],
    mode: str,
    jobs: int,
    numerics: str | None,
    contract: str,
    output: str | None,
    select: tuple[str, ...],
    allow: str,
    time_limit: float | None,
    schedule: int,
    check: str,
    dtypes: tuple[str, ...],
    blame: bool,
    explain: int | None,
    learn_noise: bool,
    repeat: int | None,
    profile: bool,
    html: str | None,
    as_json: bool,
) -> None:
    """Replay traces on a device and compare every launch with what the NVIDIA GPU computed.

    Exits 0 when something was compared and all of it holds, 1 when something fails, 2 when something could
    not be told; with several files, as the worst of them.

    Example: zluda replay corpus/*/trace.bin --device cpu,gfx1030 --html report.html
    """
    from zluda import config
    from zluda.diff.results import parse_allow
    from zluda.report.html import check_place

    _check_alone(click.get_current_context())
    allowed = parse_allow(allow)
    if html is not None:
        check_place(html)
    from zluda.report.side_by_side import Unread

    chosen = _devices(devices or (config.load().device,))
    if output is not None and len(files) * len(chosen) > 1:
        raise Error(f"--output {output}: give one FILE and one device, since a trace holds one replay")

    if jobs > 1 and mode != "isolated":
        raise click.UsageError("--jobs is for --mode isolated: in a stream each launch needs those before it")
    if output is not None and mode == "isolated":
        raise click.UsageError("--output holds what launches left to others: not with --mode isolated")
    if repeat is not None and not learn_noise:
        raise click.UsageError("--repeat says how often --learn-noise runs a trace")
    if profile and jobs > 1:
        raise click.UsageError("--profile times one replay: not with --jobs")
    if explain is not None and len(files) * len(chosen) > 1:
        raise Error(f"--explain {explain}: give one FILE and one device")
    if explain is not None:
        _explain(files[0], chosen[0], explain, numerics, contract, time_limit, as_json=as_json)
    if learn_noise:
        _learn_noise(files, chosen, repeat, as_json=as_json)

    def one(file: str, device: str) -> ReplayResult:
        import zluda

        with progress_bar(file, "calls") as progress:
            return zluda.replay(
                file,
                device=device,
                mode=mode,
                numerics=numerics,
                contract=contract,
                output=output,
                select=select,
                time_limit=time_limit,
                schedule=schedule,
                check=check,
                dtype=dtypes,
                jobs=jobs,
                profile=profile,
                progress=progress,
            )

    results: list[ReplayResult] = []
    unread: list[Unread] = []
    statuses: set[int] = set()
    for file, device in itertools.product(files, chosen):
        try:
            result = one(file, device)
        except Error as error:
            if len(files) * len(chosen) == 1:
                raise
            say(error)
            unread.append(Unread(file, device, str(error)))
            statuses.add(2)
            continue
        if blame:
            result = _blamed(result, file, device, numerics=numerics, time_limit=time_limit)
        if profile:
            from zluda.isolate.profile import profile as profiled

            result.meta = {**result.meta, "profile": profiled(result)}
        if html is not None:
            result = _with_code(result, file, inside=blame, time_limit=time_limit)
        _show(result, as_json=as_json)
        results.append(result)
        statuses.add(result.exit_status(allowed))
    if len(chosen) > 1 and not as_json:
        from zluda.report.side_by_side import Grid
        from zluda.report.terminal import print_grid

        print_grid(Grid.of(results, unread))
    if html is not None:
        from zluda.report.html import write_page

        write_page(results, html, unread=unread, made_by=as_typed(click.get_current_context()))
    sys.exit(next(status for status in _WORST_FIRST if status in statuses))


def _check_alone(context: click.Context) -> None:
    """Raise UsageError for an option that one of ``_ALONE`` would leave without an effect."""
    given = {
        option.name: max(option.opts, key=len)
        for option in context.command.params
        if isinstance(option, click.Option)
        and option.name is not None
        and context.get_parameter_source(option.name) is ParameterSource.COMMANDLINE
    }
    for alone in _ALONE.keys() & given.keys():
        others = sorted(given.keys() - _ALONE[alone] - {alone, "devices", "as_json"})
        if others:
            raise click.UsageError(f"{given[alone]} is a question of its own: not with {given[others[0]]}")


def _blamed(
    result: ReplayResult, file: str, device: str, *, numerics: str | None, time_limit: float | None
) -> ReplayResult:
    """The result with the layer at fault for each launch that fails."""
    from dataclasses import replace

    from zluda.diff.results import CountsAs
    from zluda.isolate.layers import blame
    from zluda.tracefile import open_trace

    failing = [one for one in result.results if one.verdict.counts_as is CountsAs.FAILS]
    if not failing:
        return result
    alone = result.mode == "isolated"
    with open_trace(file) as trace:
        found = blame(
            trace,
            device,
            failing,
            numerics=numerics,
            contract=result.contract,
            time_limit=time_limit,
            in_stream=not alone,
            known=failing if alone else (),
        )
    return replace(result, blame=found)


def _with_code(result: ReplayResult, file: str, *, inside: bool, time_limit: float | None) -> ReplayResult:
    """The result with the code of kernels at fault, for the page; ``inside``: with the line that is."""
    from dataclasses import replace

    from zluda.diff.results import CountsAs

    if all(one.verdict.counts_as is not CountsAs.FAILS for one in result.results):
        return result
    from zluda.isolate.listing import listings
    from zluda.tracefile import open_trace

    with open_trace(file) as trace:
        found = listings(trace, result, inside=inside, time_limit=time_limit)
    return replace(result, meta={**result.meta, "listings": found})


def _explain(
    file: str,
    device: str,
    call: int,
    numerics: str | None,
    contract: str,
    time_limit: float | None,
    *,
    as_json: bool,
) -> NoReturn:
    from zluda.cli.isolate import explained, show, status
    from zluda.isolate.layers.search import suspect_of
    from zluda.tracefile import open_trace

    with open_trace(file) as trace:
        suspect = suspect_of(trace, call)
        found = explained(trace, device, suspect, numerics, contract, time_limit, in_stream=False)
    show(found, as_json=as_json)
    sys.exit(status(found))


def _devices(asked: Sequence[str]) -> list[str]:
    """The devices named by ``--device``, each once, in full; says so where a name means another."""
    from zluda.device import names

    found: dict[str, None] = {}
    for word in (word.strip() for words in asked for word in words.split(",")):
        device = names.resolve(word)
        if word != device:
            print(f"device {word} is {device}", file=sys.stderr)
        found.setdefault(device)
    return list(found)


def _learn_noise(files: Sequence[str], devices: list[str], runs: int | None, *, as_json: bool) -> NoReturn:
    """Run each trace again on its GPU, add to it what varies, and exit by what came of it."""
    from zluda.device.names import kind
    from zluda.replay.proof import RUNS, prove
    from zluda.report.proof import sentence

    if len(devices) != 1 or kind(devices[0]) != "cuda":
        raise Error("--learn-noise learns what NVIDIA's GPU varies: give --device cuda:N")
    statuses = set()
    for file in files:
        with progress_bar(file, "calls") as progress:
            proof = prove(file, devices[0], runs=runs or RUNS, keep=True, limit=None, progress=progress)
        print(json.dumps({"trace": file, **proof.to_json()}) if as_json else f"{file}: {sentence(proof)}")
        statuses.add(0 if proof.holds else 1 if proof.fails else 2)
    sys.exit(next(status for status in _WORST_FIRST if status in statuses))


def _show(result: ReplayResult, *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(result.to_json()), flush=True)
        return
    from zluda.report.terminal import print_result

    print_result(result)
