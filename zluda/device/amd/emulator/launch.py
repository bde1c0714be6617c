"""The state in which a wave begins (LLVM, "Initial Kernel Execution State" and "Kernarg Segment")."""

from __future__ import annotations

import struct

from zluda.compiler.amd.code_object import KernelEntry
from zluda.compiler.amd.targets import Target
from zluda.device.amd.emulator import state
from zluda.device.amd.emulator.instruction import EXEC
from zluda.records import dataclass

Dim3 = tuple[int, int, int]

PACKET_BYTES = 64
QUEUE_BYTES = 256
_RESOURCE_WORD3 = 1 << 23  # ADD_TID_ENABLE: scratch, interleaved by lane (``memory.py``)


@dataclass(frozen=True, slots=True)
class Addresses:
    """Where the launch's own structures lie in memory."""

    kernarg: int
    packet: int
    queue: int


def private_bytes(kernel: KernelEntry, stack_bytes: int) -> int:
    """Scratch of a lane, ``stack_bytes`` of it for recursion and calls through pointers, if there are any."""
    descriptor = kernel.descriptor
    dynamic = stack_bytes if descriptor.dynamic_stack else 0
    return (descriptor.private_bytes + dynamic + 15) & ~15


def dispatch_packet(
    kernel: KernelEntry,
    grid: Dim3,
    block: Dim3,
    addresses: Addresses,
    code: int,
    lds_bytes: int,
    private: int,
) -> bytes:
    """``hsa_kernel_dispatch_packet_t``."""
    size = [g * b for g, b in zip(grid, block, strict=True)]
    return struct.pack(
        "<HHHHHHIIIIIQQQQ",
        0x1502,
        3,
        *block,
        0,
        *size,
        private,
        lds_bytes,
        code + kernel.descriptor_address,
        addresses.kernarg,
        0,
        0,
    )


def kernarg_segment(
    kernel: KernelEntry, explicit: bytes, grid: Dim3, block: Dim3, addresses: Addresses, dynamic_lds: int
) -> bytes:
    """Explicit arguments followed by the hidden ones that the metadata asks for."""
    size = max(kernel.descriptor.kernarg_bytes, int(kernel.metadata.get(".kernarg_segment_size", 0)))
    segment = bytearray(explicit.ljust(size, b"\0"))
    values: dict[str, int] = {
        "hidden_grid_dims": max(i + 1 for i in range(3) if i == 0 or grid[i] * block[i] > 1),
        "hidden_dynamic_lds_size": dynamic_lds,
        "hidden_private_base": state.PRIVATE_APERTURE_HIGH,
        "hidden_queue_ptr": addresses.queue,
    }
    for axis, blocks, threads in zip("xyz", grid, block, strict=True):
        values[f"hidden_block_count_{axis}"] = blocks
        values[f"hidden_group_size_{axis}"] = threads
    for argument in kernel.arguments:
        number = values.get(argument.kind)
        if number is not None and argument.offset + argument.size <= len(segment):
            data = number.to_bytes(argument.size, "little")
            segment[argument.offset : argument.offset + argument.size] = data
    return bytes(segment)


def _user_sgprs(private: int, addresses: Addresses) -> dict[str, tuple[int, ...]]:
    def pair(address: int) -> tuple[int, int]:
        return address & 0xFFFFFFFF, address >> 32

    return {
        "private_segment_buffer": (0, 0, 0xFFFFFFFF, _RESOURCE_WORD3),
        "dispatch_ptr": pair(addresses.packet),
        "queue_ptr": pair(addresses.queue),
        "kernarg_segment_ptr": pair(addresses.kernarg),
        "dispatch_id": (0, 0),
        "flat_scratch_init": (0, 0),
        "private_segment_size": (private,),
    }


def scalar_setup(
    kernel: KernelEntry, target: Target, addresses: Addresses, private: int
) -> tuple[dict[int, int], dict[str, int]]:
    """(register → number at the start, purpose → register to set for each block or wave)."""
    descriptor = kernel.descriptor
    values, index = _user_sgprs(private, addresses), 0
    registers: dict[int, int] = {}
    places: dict[str, int] = {}
    for name, count in descriptor.user_sgprs:
        registers |= {index + i: n for i, n in enumerate(values[name])}
        places |= {
            "private_segment_buffer": {"resource": index},
            "flat_scratch_init": {"flat_scratch": index},
        }.get(name, {})
        index += count
    index = max(index, descriptor.user_sgpr_count)
    if not target.work_group_ids_in_ttmps:
        for name, enabled in zip(("id_x", "id_y", "id_z"), descriptor.work_group_id_sgprs, strict=True):
            if enabled:
                places[name] = index
                index += 1
        index += descriptor.work_group_info_sgpr
        if descriptor.uses_scratch and not target.architected_flat_scratch:
            places["wave_offset"] = index
    return registers, places


def wave_templates(
    kernel: KernelEntry, target: Target, wave_size: int, block: Dim3, addresses: Addresses, private: int
) -> tuple[bytes, int, int, dict[str, int]]:
    """(templates of a block's waves, bytes of one, waves, registers set for each block or wave)."""
    import numpy as np

    registers, places = scalar_setup(kernel, target, addresses, private)
    threads = block[0] * block[1] * block[2]
    waves = -(-threads // wave_size)
    vgprs = 1 if target.packed_work_item_ids else kernel.descriptor.work_item_id_vgprs
    words = (state.VGPRS + vgprs * 4 * wave_size) // 4
    image = np.zeros((waves, words), np.uint32)
    for register, number in registers.items():
        image[:, register] = number
    flat = np.minimum(np.arange(waves * wave_size), threads - 1).reshape(waves, wave_size)
    ids = [flat % block[0], flat // block[0] % block[1], flat // (block[0] * block[1])]
    if target.packed_work_item_ids:
        ids = [ids[0] | ids[1] << 10 | ids[2] << 20]
    first = state.VGPRS // 4
    for i, values in enumerate(ids[:vgprs]):
        image[:, first + i * wave_size : first + (i + 1) * wave_size] = values
    for wave in range(waves):
        active = min(wave_size, threads - wave * wave_size)
        mask = (1 << active) - 1
        image[wave, EXEC], image[wave, EXEC + 1] = mask & 0xFFFFFFFF, mask >> 32
        image[wave, state.PC // 4 : state.PC // 4 + 2] = kernel.address & 0xFFFFFFFF, kernel.address >> 32
    return image.tobytes(), words * 4, waves, places
