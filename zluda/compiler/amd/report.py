"""What a compiled kernel needs of an AMD GPU, read from its code object."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from zluda.compiler.amd.code_object import CodeObject
from zluda.compiler.amd.disassembler import Disassembler
from zluda.records import dataclass

# Mnemonic prefixes to the unit that executes them, the first that fits (RDNA2 ISA 2).
_UNITS = (
    (("s_load", "s_buffer_load", "s_memtime", "s_memrealtime", "s_dcache", "s_gl1"), "scalar memory"),
    (("s_cbranch", "s_branch", "s_setpc", "s_swappc", "s_call", "s_endpgm", "s_trap"), "branch"),
    (("s_waitcnt", "s_nop", "s_barrier", "s_sleep", "s_clause", "s_delay", "s_inst", "s_code_end"), "wait"),
    (("s_",), "scalar"),
    (("ds_",), "LDS"),
    (("global_", "flat_", "buffer_"), "vector memory"),
    (("scratch_",), "scratch"),
    (("v_",), "vector"),
)


@dataclass(frozen=True, slots=True)
class Report:
    """Sizes in bytes (LDS a block, scratch a thread), registers a wave, waves a SIMD that registers allow."""

    kernel: str
    target: str
    wave_size: int
    vgprs: int
    sgprs: int
    vgpr_spills: int
    sgpr_spills: int
    lds_bytes: int
    scratch_bytes: int
    kernarg_bytes: int
    code_bytes: int
    waves_per_simd: int
    max_waves_per_simd: int
    blocks_by_lds: int | None
    instructions: dict[str, int]

    def lines(self) -> Iterator[str]:
        """For a person to read."""
        yield f"{self.kernel} on {self.target}, waves of {self.wave_size}"
        spills = f"{self.vgpr_spills} vector and {self.sgpr_spills} scalar spilled"
        yield f"  registers    {self.vgprs} vector, {self.sgprs} scalar; {spills}"
        occupancy = f"{self.waves_per_simd} of {self.max_waves_per_simd} waves a SIMD"
        by_lds = "" if self.blocks_by_lds is None else f"; {self.blocks_by_lds} blocks a unit by LDS"
        yield f"  occupancy    {occupancy}{by_lds}"
        memory = f"{self.lds_bytes} bytes of LDS a block, {self.scratch_bytes} of scratch a thread"
        yield f"  memory       {memory}"
        mix = ", ".join(f"{count} {unit}" for unit, count in self.instructions.items())
        yield f"  instructions {sum(self.instructions.values())} in {self.code_bytes} bytes: {mix}"


def unit_of(mnemonic: str) -> str:
    """What executes an instruction."""
    return next((unit for prefixes, unit in _UNITS if mnemonic.startswith(prefixes)), "other")


def report(data: bytes, kernel: str) -> Report:
    """Read a code object. Raises DeviceError where no disassembler is installed."""
    code = CodeObject(data)
    entry, target = code.kernel(kernel), code.target
    found = entry.metadata
    wave_size = int(found[".wavefront_size"])
    start, size = entry.address, code.symbols[kernel].size
    lines = Disassembler(target, wave_size).lines(code.image, start, start + size)
    mix = Counter(unit_of(line.text.split()[0]) for line in lines)
    vgprs, lds = int(found[".vgpr_count"]), int(found[".group_segment_fixed_size"])
    return Report(
        kernel=kernel,
        target=target.name,
        wave_size=wave_size,
        vgprs=vgprs,
        sgprs=int(found[".sgpr_count"]),
        vgpr_spills=int(found[".vgpr_spill_count"]),
        sgpr_spills=int(found[".sgpr_spill_count"]),
        lds_bytes=lds,
        scratch_bytes=int(found[".private_segment_fixed_size"]),
        kernarg_bytes=int(found[".kernarg_segment_size"]),
        code_bytes=size,
        waves_per_simd=target.waves_per_simd(vgprs, wave_size),
        max_waves_per_simd=target.max_waves_per_simd,
        blocks_by_lds=target.lds_bytes // lds if lds else None,
        instructions=dict(mix.most_common()),
    )
