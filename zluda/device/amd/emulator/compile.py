"""A lifted kernel's IR to host code in this process."""

from __future__ import annotations

import functools
import importlib.resources
import itertools
import string
from typing import Any

from zluda.compiler.cache import remember
from zluda.compiler.cache.key import host_key, source_digest
from zluda.compiler.cpu.llvm import FUNCTION_ATTRIBUTES, optimize_quickly, target_machine
from zluda.device.amd.emulator import state
from zluda.device.amd.emulator.lift import Lifted
from zluda.errors import Error

# Instructions of a kernel from which on code generation is quick rather than good: it takes more than linear
# time over long basic blocks.
_LONG = 4000

# A wave's registers are memory: numbering values finds what a block need not load again. A loop's code is a
# tenth quicker for it.
_PASSES = (
    "always_inliner",
    "sroa",
    "simplify_cfg",
    "instruction_combine",
    "new_gvn",
    "sccp",
    "simplify_cfg",
    "aggressive_dce",
)

_serial = itertools.count()


@functools.cache
def _linker() -> Any:
    import llvmlite.binding as llvm

    return llvm.create_lljit_compiler(target_machine())


@functools.cache
def version() -> str:
    """Digest of the emulator's sources: what host code of one code object may change with."""
    return source_digest("zluda.device.amd.emulator")


class HostCode:
    """An object of :func:`emit` in memory, valid as long as this lives.

    ``address`` is what it exports, ``size`` the object's in bytes.
    """

    def __init__(self, code: bytes, export: str) -> None:
        import llvmlite.binding as llvm

        builder = llvm.JITLibraryBuilder().add_object_img(code).add_current_process()
        builder.export_symbol(export)
        self._library = builder.link(_linker(), f"zluda-amd-{next(_serial)}")
        self.address: int = self._library[export]
        self.size = len(code)


def emit(text: str) -> bytes:
    """A relocatable object of the runtime's IR text. An error here is a fault of the emulator."""
    import llvmlite.binding as llvm

    machine = target_machine()
    module = _parsed(text, machine)
    tuning = llvm.create_pipeline_tuning_options(speed_level=2)
    tuning.loop_vectorization = tuning.slp_vectorization = False
    builder = llvm.create_pass_builder(machine, tuning)
    builder.getModulePassManager().run(module, builder)
    return bytes(machine.emit_object(module))


def emit_wave(lifted: Lifted) -> bytes:
    """A relocatable object of a lifted kernel: no more passes than pay, and none over a function too long."""
    long = lifted.instructions >= _LONG
    machine = target_machine(0 if long else 2)
    module = _parsed(lifted.text, machine)
    passes = [name for name in _PASSES if not (long and name == "new_gvn")]
    return bytes(machine.emit_object(optimize_quickly(module, machine, passes)))


def _parsed(text: str, machine: Any) -> Any:
    import llvmlite.binding as llvm

    try:
        module = llvm.parse_assembly(f"{text}\n{FUNCTION_ATTRIBUTES}\n")
        module.verify()
    except RuntimeError as error:
        raise Error(f"the emulator wrote LLVM IR that is not valid: {error}") from error
    module.triple = llvm.get_process_triple()
    module.data_layout = str(machine.target_data)
    return module


class _Template(string.Template):
    idpattern = r"[A-Za-z_][A-Za-z_.]*"
    flags = 0  # type: ignore[assignment]


def scheduler_ir() -> str:
    """LLVM IR of ``schedule.ll``, with the records' layout filled in."""
    values: dict[str, int] = {
        name: getattr(state, name)
        for name in (
            *("PC", "COUNT", "VECTOR", "BYTES", "BUDGET", "GENERATION", "PRIVATE", "VGPRS"),
            *("ENDED", "AT_BARRIER", "SLICE"),
        )
    }
    for record in (state.Block, state.Job, state.Worker):
        values |= {f"{record.__name__}.{f[0]}": getattr(record, f[0]).offset for f in record._fields_}
        values[f"sizeof.{record.__name__}"] = _size(record)
    text = importlib.resources.files(__package__).joinpath("schedule.ll").read_text()
    return _Template(text).substitute(values)


def _size(record: Any) -> int:
    import ctypes

    return ctypes.sizeof(record)


@functools.cache
def scheduler() -> HostCode:
    """``void amd_run(Job*, Worker*)``: takes blocks of a launch and runs their waves."""
    text = scheduler_ir()
    code = remember(host_key("scheduler", [version(), text]), lambda: emit(text), label="emulator scheduler")
    return HostCode(code, "amd_run")
