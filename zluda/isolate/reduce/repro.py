"""``repro/``: a small trace of the launch, its PTX, and a test that fails until the fault is mended."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from zluda.driver.table import driver_api
from zluda.errors import Error, UnsupportedError
from zluda.isolate.alone import Stage
from zluda.isolate.reduce.case import Case
from zluda.isolate.values.difference import Difference
from zluda.tracefile import AllocationKind, Direction, Fidelity, ModuleKind, Parameter, TraceWriter
from zluda.tracefile.arguments import ArgumentLayout

TRACE, PTX, TEST, NOTES = "repro.bin", "repro.ptx", "test_repro.py", "README.md"

_THREAD = 1
_HOST = 0x1000  # stands for a pointer of the host's


def check_folder(folder: str | os.PathLike[str]) -> None:
    """May a repro be written to ``folder``? Raises Error where it cannot be made, or where it holds files
    that are no repro and would be mixed with one, or lost.
    """
    path = Path(folder)
    if path.is_dir():
        if any(path.iterdir()) and not (path / TRACE).is_file():
            raise Error(f"{path}: holds other files; name a new folder, or one of an older repro")
        place = path
    else:
        place = next(one for one in (path, *path.absolute().parents) if one.exists() or one.is_symlink())
        if not place.is_dir():
            raise Error(f"{path}: cannot be made: {place} is no directory")
    if not os.access(place, os.W_OK | os.X_OK):
        raise Error(f"{path}: cannot be written: no permission in {place}")


class ReproWriter:
    """Writes calls as a recorder would have seen them."""

    def __init__(self, path: Path, meta: Mapping[str, Any]) -> None:
        self._writer = TraceWriter.create(path, meta)
        self._sequence = 0
        self._handle = 0xA000

    def call(
        self,
        function: str,
        *,
        out: Mapping[str, int] | None = None,
        given: Mapping[str, bytes] | None = None,
        arguments: Mapping[str, int] | None = None,
    ) -> int:
        """One call; its number. ``out`` is put where parameters point, ``given`` lies where others do, and of
        ``arguments`` those are taken that the function has.
        """
        rows = driver_api()["functions"][function]["parameters"]
        parameters = [Parameter(r["name"], r["type"], Direction(r["direction"]), r["pointee"]) for r in rows]
        after = {
            p.name: (out or {})[p.name].to_bytes(p.pointee_size, "little")
            for p in parameters
            if p.name in (out or {})
        }
        pointed = {*after, *(given or {})}
        words = [(arguments or {}).get(p.name, _HOST if p.name in pointed else 0) for p in parameters]
        blob = ArgumentLayout(parameters).encode(words, {}, after)
        sequence, self._sequence = self._sequence, self._sequence + 1
        signature = self._writer.signature(function, parameters)
        times = (1000 * sequence, 1000 * sequence + 500)
        self._writer.add_calls([(sequence, _THREAD, None, signature, *times, 0, blob)])
        for name, data in (given or {}).items():
            index = [p.name for p in parameters].index(name)
            self._writer.add_payload(sequence, index, Direction.IN, data, text=name == "name")
        return sequence

    def handle(self) -> int:
        self._handle += 0x10
        return self._handle

    def close(self) -> None:
        self._writer.close()

    def write(self, case: Case, right: Stage, after: Mapping[int, bytes]) -> int:
        """The whole case, with what the right device made of it. The number of the launching call."""
        launch, writer = right.launch, self._writer
        context, module, function = self.handle(), self.handle(), self.handle()
        self.call("cuInit")
        self.call("cuDeviceGet", out={"device": 0})
        self.call("cuDevicePrimaryCtxRetain", out={"pctx": context})
        self.call("cuCtxSetCurrent", arguments={"ctx": context})
        loaded = self.call("cuModuleLoadData", out={"module": module}, arguments={"image": _HOST})
        image = case.text.encode()
        number = writer.add_module(loaded, ModuleKind.PTX, module, image=image, origin="reduced")
        name = launch.kernel.encode() + b"\0"
        of_module = {"hmod": module}
        asked = self.call(
            "cuModuleGetFunction", out={"hfunc": function}, given={"name": name}, arguments=of_module
        )
        kernel = writer.add_function(asked, function, launch.kernel, module=number, layout=launch.layout)
        ids = self._memory(case, right, module, number)
        entry = right.trace.call(launch.call).function
        words = {"f": function, "sharedMemBytes": launch.shared_bytes, "hStream": 0}
        words |= dict(zip(("gridDimX", "gridDimY", "gridDimZ"), case.grid, strict=True))
        words |= dict(zip(("blockDimX", "blockDimY", "blockDimZ"), case.block, strict=True))
        call = self.call(entry, arguments=words)
        shape = writer.shape(
            kernel,
            case.grid,
            case.block,
            cluster=launch.cluster,
            shared_bytes=launch.shared_bytes,
            fidelity=Fidelity.SAME_PTX,
            attributes=launch.attributes,
        )
        writer.add_launch(call, shape, launch.parameters, captured=True)
        for key, contents in after.items():
            if key in ids and contents != case.memory.get(key, right.before[key]):
                writer.add_page(call, ids[key], 0, contents)
        return call

    def _memory(self, case: Case, right: Stage, module: int, number: int) -> dict[int, int]:
        """Allocations with their contents: ids in the stage's trace → in this one."""
        ids: dict[int, int] = {}
        variables = {variable.name for variable in case.part.variables}
        for one in right.reached:
            data = case.memory.get(one.id, right.before[one.id])
            if one.kind is AllocationKind.GLOBAL:
                if one.name not in variables:
                    continue
                asked = self.call(
                    "cuModuleGetGlobal_v2",
                    arguments={"hmod": module},
                    out={"dptr": one.base, "bytes": one.size},
                    given={"name": one.name.encode() + b"\0"},
                )
                new = self._writer.add_allocation(
                    asked, one.base, one.size, one.kind, name=one.name, module=number
                )
                self._writer.add_page(asked, new, 0, data, found=True)
            else:
                made = self.call("cuMemAlloc_v2", arguments={"bytesize": one.size}, out={"dptr": one.base})
                new = self._writer.add_allocation(made, one.base, one.size)
                self._writer.add_page(made, new, 0, data, found=True)
            ids[one.id] = new
        return ids


def write_repro(
    folder: Path,
    case: Case,
    right: Stage,
    after: Mapping[int, bytes],
    wrong: str,
    numerics: str,
    contract: str,
    difference: Difference | None,
) -> None:
    """Write the folder. ``after`` is memory after the launch on the device that is right.

    Raises UnsupportedError for a launch that reaches textures or surfaces, which such a trace does not make.
    """
    arrays = [one for one in right.reached if one.kind is AllocationKind.ARRAY]
    if arrays:
        raise UnsupportedError("a repro of a launch that reads CUDA arrays", right.launch.kernel)
    folder.mkdir(parents=True, exist_ok=True)
    launch = right.launch
    meta = {
        "capture": "outputs",
        "command": ["zluda", "isolate", "--reduce"],
        "device": right.name,
        "numerics": right.numerics,
        "cut_from": {"trace": right.trace.path.name, "calls": f"{launch.call}-{launch.call}"},
    }
    writer = ReproWriter(folder / TRACE, meta)
    try:
        writer.write(case, right, after)
    finally:
        writer.close()
    (folder / PTX).write_text(case.text)
    (folder / TEST).write_text(_test(right, wrong, numerics, contract, difference))
    (folder / NOTES).write_text(_notes(case, right, wrong, numerics, contract, difference))


def _test(right: Stage, wrong: str, numerics: str, contract: str, difference: Difference | None) -> str:
    at = f"\n\n{_comment(str(difference))}" if difference is not None else ""
    title = f"Call {right.launch.call} of {right.trace.path.name}, reduced: {wrong} parts from {right.name}."
    return f'''"""{title}{at}
"""

from pathlib import Path

import zluda


def test_repro() -> None:
    trace = Path(__file__).with_name("{TRACE}")
    result = zluda.replay(trace, device="{wrong}", numerics="{numerics}", contract="{contract}")
    assert result.exit_status() == 0, [(one.verdict.value, one.reason) for one in result.results]
'''


def _comment(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"""', "'''")


def _notes(
    case: Case, right: Stage, wrong: str, numerics: str, contract: str, difference: Difference | None
) -> str:
    lines = [
        f"# {right.launch.kernel}: {wrong} parts from {right.name}",
        "",
        f"Reduced from call {right.launch.call} of `{right.trace.path.name}`: "
        f"{case.instructions} PTX instructions, grid {case.grid}, block {case.block}. "
        f"What memory should hold after it is what `{right.name}` computed (numerics {right.numerics}).",
        "",
    ]
    if difference is not None:
        lines += [f"    {difference}", ""]
    replay = f"zluda replay {shlex.quote(TRACE)} --device {wrong} --numerics {numerics} --contract {contract}"
    lines += ["See it fail:", "", f"    python -m pytest {TEST}", f"    {replay}", ""]
    return "\n".join(lines)
