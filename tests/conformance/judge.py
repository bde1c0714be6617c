"""Hold a device against the golden results, form by form.

    python tests/conformance/judge.py [--device cpu] [--forms REGEX] [--full DIRECTORY] …
    make conformance DEVICE=gfx1030

prints each form that differs with the first differing result: its operands, what the GPU gave, what the
device gave. ``--full`` names the directory of the ``full-*.npz`` files that ``record_golden.py --full``
wrote: they reach further than the results kept in the repository.
"""

from __future__ import annotations

import argparse
import collections
import functools
import itertools
import queue
import re
import signal
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import golden_file
import numpy as np
from golden_file import Expected
from isa_forms import all_forms
from isa_forms.form import Form
from isa_forms.inputs import BLOCK, Words, operands
from isa_forms.kernels import ENTRY, THREADS, Group, groups, result_bytes

import zluda

EXCEPTIONS = Path(__file__).parent / "exceptions.toml"


@dataclass(frozen=True)
class Outcome:
    """``identical``, ``differs``, ``unsupported`` or ``crash``; ``detail`` says what and where."""

    form: str
    kind: str
    detail: str = ""


@dataclass(frozen=True)
class Exception_:
    """One entry of ``exceptions.toml``."""

    device: str
    forms: str
    count: int
    outcome: str
    reason: str


def exceptions(device: str) -> list[Exception_]:
    """What is known to fail on a device."""
    entries = tomllib.loads(EXCEPTIONS.read_text()).get("exception", [])
    return [entry for entry in (Exception_(**e) for e in entries) if entry.device == device]


def excused(device: str, forms: Iterable[Form]) -> dict[str, Exception_]:
    """Form name → its exception."""
    listed = exceptions(device)
    found = {form.name: [e for e in listed if re.fullmatch(e.forms, form.name)] for form in forms}
    return {name: entries[0] for name, entries in found.items() if entries}


@functools.cache
def operand_words(sources: tuple[str, ...]) -> list[Words]:
    """The operands of a group, made once."""
    return operands(sources)


def run(device: Any, group: Group) -> bytes:
    """Launch one group's kernel; the whole output buffer. Raises :class:`zluda.Error`."""
    kernel = device.load_module(group.ptx()).kernel(ENTRY)
    inputs = [device.array(words) for words in operand_words(group.sources)]
    output = device.array(np.zeros(group.offsets[-1], dtype=np.uint8))
    arguments = [*inputs, *[0] * (3 - len(inputs)), output]
    try:
        kernel.launch(grid=(group.grid, 1, 1), block=(THREADS, 1, 1), args=arguments)
        device.synchronize()
        return bytes(output.numpy())
    finally:
        for array in (*inputs, output):
            array.free()


def apart(group: Group) -> list[Group]:
    """A group a form."""
    return [Group(form.name, group.sources, (form,)) for form in group.forms]


def judge(device: Any, group: Group, golden: Mapping[str, Expected]) -> list[Outcome]:
    """One outcome a form. A kernel that does not compile is taken apart, so that each form answers for
    itself."""
    try:
        output = run(device, group)
    except zluda.Error as error:
        if len(group.forms) == 1:
            return [Outcome(group.forms[0].name, "unsupported", str(error))]
        return [outcome for single in apart(group) for outcome in judge(device, single, golden)]
    offsets = group.offsets
    return [
        compare(form, output[start:end], golden[form.name])
        for form, start, end in zip(group.forms, offsets, offsets[1:], strict=False)
    ]


def compare(form: Form, got: bytes, expected: Expected) -> Outcome:
    """The head byte for byte, everything by digest."""
    width = result_bytes(form)
    head = got[: len(expected.head)]
    if head != expected.head:
        return Outcome(form.name, "differs", _first_difference(form, got, expected.head))
    blocks = golden_file.digests(got, width)
    wrong = [k for k, (a, b) in enumerate(zip(blocks, expected.digests, strict=True)) if a != b]
    if wrong:
        place = f"among results {wrong[0] * BLOCK}..{(wrong[0] + 1) * BLOCK - 1} (by digest)"
        return Outcome(form.name, "differs", place)
    return Outcome(form.name, "identical")


def _first_difference(form: Form, got: bytes, expected: bytes) -> str:
    width = result_bytes(form)
    mine = np.frombuffer(got[: len(expected)], dtype=f"<u{width}")
    theirs = np.frombuffer(expected, dtype=f"<u{width}")
    wrong = np.flatnonzero(mine != theirs)
    index, digits = int(wrong[0]), 2 * width
    words = operand_words(form.sources)
    given = ", ".join(f"{kind} {int(word[index]):#x}" for kind, word in zip(form.sources, words, strict=True))
    values = f"expected 0x{int(theirs[index]):0{digits}x}, got 0x{int(mine[index]):0{digits}x}"
    return f"result {index} of ({given}): {values}; {len(wrong)} of the first {len(theirs)} differ"


def with_full(golden: dict[str, Expected], directory: Path) -> dict[str, Expected]:
    """Longer heads, from the files of ``record_golden.py --full``."""
    longer = dict(golden)
    for path in sorted(directory.glob("full-*.npz")):
        with np.load(path) as file:
            names = file["names"].tobytes().decode().split("\n")
            sizes, data = file["sizes"].tolist(), file["data"].tobytes()
        start = 0
        for name, size in zip(names, sizes, strict=True):
            if name in longer:
                longer[name] = Expected(longer[name].digests, data[start : start + size])
            start += size
    return longer


class Died(Exception):
    """A process ended under a group; says how."""


class Judge:
    """A process with its own device, so that one which crashes the process is judged like any other."""

    def __init__(self, device: str, full: Path | None) -> None:
        self._arguments = (device, full)
        self._start()

    def _start(self) -> None:
        context = get_context("spawn")
        self._channel, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, *self._arguments), daemon=True)
        self._process.start()
        theirs.close()

    def __call__(self, group: Group) -> list[Outcome]:
        """One outcome a form. A group that ends the process is taken apart, so that the form is known."""
        try:
            return self._ask(group)
        except Died as ending:
            self._start()
            if len(group.forms) == 1:
                return [Outcome(group.forms[0].name, "crash", str(ending))]
            return [outcome for single in apart(group) for outcome in self(single)]

    def _ask(self, group: Group) -> list[Outcome]:
        try:
            self._channel.send(group)
            answer = self._channel.recv()
        except (EOFError, OSError):
            self._process.join()
            code = self._process.exitcode or 0
            ending = signal.Signals(-code).name if code < 0 else f"exit status {code}"
            raise Died(f"the process ended: {ending}") from None
        if isinstance(answer, Exception):
            raise answer
        outcomes: list[Outcome] = answer
        return outcomes

    def close(self) -> None:
        """End the process."""
        self._channel.close()
        self._process.join()


def _serve(channel: Connection, device: str, full: Path | None) -> None:
    """A judge's process: groups in, outcomes out, until the channel is closed."""
    golden, _ = golden_file.load()
    expected = with_full(golden, full) if full else golden
    opened = zluda.open_device(device, numerics="nvidia")
    while True:
        try:
            group = channel.recv()
        except EOFError:
            return
        try:
            channel.send(judge(opened, group, expected))
        except Exception as error:  # a fault of this program is the caller's to show
            channel.send(error)
            return


def judged(device: str, chosen: Sequence[Group], full: Path | None, jobs: int) -> Iterator[list[Outcome]]:
    """The outcomes of each group, in the order in which ``jobs`` processes are done with them."""
    judges: queue.SimpleQueue[Judge] = queue.SimpleQueue()
    for _ in range(jobs):
        judges.put(Judge(device, full))

    def ask(group: Group) -> list[Outcome]:
        mine = judges.get()
        try:
            return mine(group)
        finally:
            judges.put(mine)

    with ThreadPoolExecutor(jobs) as pool:
        for done in as_completed([pool.submit(ask, group) for group in chosen]):
            yield done.result()
    while not judges.empty():
        judges.get().close()


def main() -> int:
    """Command line; 1 when any form differs or is unsupported."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--forms", default="", metavar="REGEX")
    parser.add_argument("--full", type=Path, metavar="DIRECTORY")
    parser.add_argument("--awaiting", action="store_true", help="also the families of AWAITING")
    parser.add_argument(
        "--jobs", type=int, default=1, metavar="N", help="processes, each with its own device"
    )
    parser.add_argument("--verbose", action="store_true", help="also name the forms that are identical")
    options = parser.parse_args()
    count: collections.Counter[str] = collections.Counter()
    forms = all_forms(awaiting=options.awaiting)
    chosen = groups(form for form in forms if re.search(options.forms, form.name))
    for outcome in itertools.chain.from_iterable(judged(options.device, chosen, options.full, options.jobs)):
        count[outcome.kind] += 1
        if options.verbose or outcome.kind != "identical":
            print(f"{outcome.kind:11} {outcome.form}: {outcome.detail}", flush=True)
    print(f"{options.device}: {dict(count)}")
    return 0 if set(count) <= {"identical"} else 1


if __name__ == "__main__":
    sys.exit(main())
