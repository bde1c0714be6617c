"""The native runtime's IR, with the records' layout filled in."""

from __future__ import annotations

import ctypes
import importlib.resources
import string

from zluda.compiler.cpu import context
from zluda.compiler.stops import FAULT_CODES

EXPORTS = (
    "zluda_launch",
    "zluda_worker",
    "zluda_stop",
    "zluda_barrier",
    "zluda_fault",
    "zluda_fibers",
    "zluda_yield",
    "zluda_turn",
    "zluda_cluster_arrive",
    "zluda_cluster_wait",
)
"""What the device calls, and what kernels import."""

KERNEL_IMPORTS = EXPORTS[3:]


class _Template(string.Template):
    idpattern = r"[A-Za-z_][A-Za-z_.]*"
    flags = 0  # type: ignore[assignment]


def runtime_ir() -> str:
    """LLVM IR of ``runtime.ll``."""
    values: dict[str, int] = {"BARRIERS": context.BARRIERS, "STACK_BYTES": context.STACK_BYTES}
    values |= {f"FAULT.{name}": code for name, code in FAULT_CODES.items()}
    for record in (context.Context, context.Job, context.Fiber, context.Barrier, context.Cluster):
        values[f"sizeof.{record.__name__}"] = ctypes.sizeof(record)
        values |= {f"{record.__name__}.{f[0]}": getattr(record, f[0]).offset for f in record._fields_}
    values["sizeof.barriers"] = ctypes.sizeof(context.Barrier) * context.BARRIERS
    text = importlib.resources.files(context.__package__).joinpath("runtime.ll").read_text()
    return _Template(text).substitute(values)
