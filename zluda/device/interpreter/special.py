"""Special registers (PTX ISA 10)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from zluda.device.interpreter.values import Bits

if TYPE_CHECKING:
    from zluda.device.interpreter.machine import Machine
    from zluda.device.interpreter.step import Step

_AXES = "xyzw"
_MULTIPROCESSORS = 132
_CLOCKS = {
    "%clock": 0,
    "%clock64": 0,
    "%clock_hi": 32,
    "%globaltimer": 0,
    "%globaltimer_lo": 0,
    "%globaltimer_hi": 32,
}
_WIDE = ("%clock64", "%globaltimer", "%gridid", "%current_graph_exec")


def varies(name: str) -> bool:
    """Whether it is another at each reading."""
    return name in _CLOCKS


def varying(machine: Machine, name: str, step: Step) -> Bits:
    """The clocks: instructions executed so far."""
    kind = np.uint64 if name in _WIDE else np.uint32
    return np.full(step.count, machine.steps >> _CLOCKS[name], kind)


def fixed(machine: Machine, name: str, step: Step) -> Bits:
    """One that stays as it is, for all threads."""
    word, _, axis = name.lstrip("%").partition(".")
    if axis:
        return _position(machine, word, _AXES.index(axis))
    inside = np.arange(machine.count) % machine.per_block
    lane = (inside % 32).astype(np.uint32)
    bit = np.uint32(1) << lane
    if word.startswith("lanemask_"):
        masks = {"eq": bit, "lt": bit - 1, "le": bit | (bit - 1), "ge": ~(bit - 1), "gt": ~(bit | (bit - 1))}
        return masks[word.removeprefix("lanemask_")].astype(np.uint32)
    if word == "laneid":
        return lane
    if word == "warpid":
        return (inside // 32).astype(np.uint32)
    grid = machine.grid
    order = np.repeat(np.asarray(machine.blocks, np.int64), machine.per_block)
    if word == "cluster_ctarank":
        return (order % grid.cluster_blocks).astype(np.uint32)
    static = machine.kernel.shared_bytes
    constants = {
        "nwarpid": machine.warps_per_block,
        "nsmid": _MULTIPROCESSORS,
        "smid": 0,
        "gridid": grid.number,
        "cluster_nctarank": grid.cluster_blocks,
        "dynamic_smem_size": grid.dynamic_shared,
        "total_smem_size": static + grid.dynamic_shared,
        "aggr_smem_size": static + grid.dynamic_shared,
    }
    if word == "is_explicit_cluster":
        return np.full(machine.count, grid.cluster is not None)
    if word in constants:
        return np.full(machine.count, constants[word], np.uint64 if name in _WIDE else np.uint32)
    if word in ("envreg1", "envreg2"):  # where cooperative groups find the grid's workspace
        half = grid.workspace >> (32 if word == "envreg1" else 0) & 0xFFFFFFFF
        return np.full(machine.count, half, np.uint32)
    if word.startswith("envreg"):
        return np.zeros(machine.count, np.uint32)
    raise step.unsupported(name)


def _position(machine: Machine, word: str, axis: int) -> Bits:
    grid = machine.grid
    if axis == 3:  # the fourth element of each vector is nothing (PTX ISA 10.1)
        value = 1 if word.startswith(("n", "cluster_n")) else 0
        return np.full(machine.count, value, np.uint32)
    cluster = grid.cluster or (1, 1, 1)
    sizes = {
        "ntid": grid.block[axis],
        "nctaid": grid.grid[axis],
        "nclusterid": grid.grid[axis] // cluster[axis],
        "cluster_nctaid": cluster[axis],
    }
    if word in sizes:
        return np.full(machine.count, sizes[word], np.uint32)
    if word == "tid":
        inside = np.minimum(np.arange(machine.per_block), grid.threads - 1)
        one = np.array([grid.thread_index(number)[axis] for number in inside.tolist()], np.uint32)
        return np.tile(one, len(machine.blocks))
    index = np.array([grid.block_index(order)[axis] for order in machine.blocks], np.uint32)
    index = {"ctaid": index, "clusterid": index // cluster[axis], "cluster_ctaid": index % cluster[axis]}[
        word
    ]
    return np.repeat(index.astype(np.uint32), machine.per_block)
