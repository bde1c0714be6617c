"""AMD's targets, one row each.

Sources: LLVM "User Guide for AMDGPU Backend" (processors, code object V3 and later: granules, user SGPRs,
ELF flags) and AMD's instruction set architecture manuals (registers, LDS).
"""

from __future__ import annotations

import functools

from zluda import config
from zluda.errors import DeviceError
from zluda.records import dataclass

CODE_OBJECT_VERSION = 5
"""What AMD's loaders read since HIP 6."""


@dataclass(frozen=True, slots=True)
class Target:
    """One processor.

    ``generation`` is the family of instruction sets (9 to 12). ``wave_sizes`` lists the wave sizes, native
    first. ``lds_bytes`` is the most a workgroup can have. Register counts are those a wave can address and,
    per SIMD lane, those that waves share; granules are what allocation is rounded to, for each wave size.
    ``packed_work_item_ids``: x, y and z of a work item arrive in v0, ten bits each, instead of v0, v1, v2.
    """

    name: str
    product: str
    elf_machine: int
    generation: int
    wave_sizes: tuple[int, ...]
    lds_bytes: int
    sgprs: int
    vgprs: int
    vgprs_per_simd: int
    vgpr_granules: tuple[int, ...]
    max_waves_per_simd: int
    simds_per_unit: int
    packed_work_item_ids: bool
    accumulation_vgprs: bool = False
    architected_flat_scratch: bool = False
    packed_f32: bool = False
    features: str = ""

    @property
    def wave_size(self) -> int:
        """The native wave size."""
        return self.wave_sizes[0]

    @property
    def work_group_ids_in_ttmps(self) -> bool:
        """gfx12 hands a workgroup its ids in trap temporaries (LLVM: "Initial Kernel Execution State")."""
        return self.generation >= 12

    def vgpr_granule(self, wave_size: int) -> int:
        """VGPRs are allocated in multiples of this."""
        return self.vgpr_granules[self.wave_sizes.index(wave_size)]

    def waves_per_simd(self, vgprs: int, wave_size: int) -> int:
        """How many waves that use ``vgprs`` registers a SIMD holds."""
        granule = self.vgpr_granule(wave_size)
        allocated = max(granule, -(-vgprs // granule) * granule)
        available = self.vgprs_per_simd // (1 if wave_size == min(self.wave_sizes) else 2)
        return min(self.max_waves_per_simd, available // allocated)


# fmt: off
_ROWS = (
    #       name       product                ELF   gen waves     LDS    sgpr vgpr simd  granules waves simds packed-ids
    Target("gfx900",  "Radeon RX Vega",       0x2C, 9,  (64,),    65536, 102, 256, 256,  (4,),    10,  4, False),
    Target("gfx906",  "Radeon VII",           0x2F, 9,  (64,),    65536, 102, 256, 256,  (4,),    10,  4, False),
    Target("gfx908",  "Instinct MI100",       0x30, 9,  (64,),    65536, 102, 256, 256,  (4,),    10,  4, False,
           accumulation_vgprs=True),
    Target("gfx90a",  "Instinct MI200",       0x3F, 9,  (64,),    65536, 102, 512, 512,  (8,),    8,   4, True,
           accumulation_vgprs=True, packed_f32=True),
    Target("gfx942",  "Instinct MI300",       0x4C, 9,  (64,),    65536, 102, 512, 512,  (8,),    8,   4, True,
           accumulation_vgprs=True, architected_flat_scratch=True, packed_f32=True),
    Target("gfx1010", "Radeon RX 5700",       0x33, 10, (32, 64), 65536, 106, 256, 1024, (8, 4),  20,  2, False),
    Target("gfx1030", "Radeon RX 6800",       0x36, 10, (32, 64), 65536, 106, 256, 1024, (8, 4),  16,  2, False),
    Target("gfx1100", "Radeon RX 7900",       0x41, 11, (32, 64), 65536, 106, 256, 1536, (24, 12), 16, 2, True,
           architected_flat_scratch=True),
    Target("gfx1151", "Ryzen AI Max",         0x4A, 11, (32, 64), 65536, 106, 256, 1536, (24, 12), 16, 2, True,
           architected_flat_scratch=True),
    Target("gfx1200", "Radeon RX 9060",       0x48, 12, (32, 64), 65536, 106, 256, 1536, (24, 12), 16, 2, True,
           architected_flat_scratch=True),
    Target("gfx1201", "Radeon RX 9070",       0x4E, 12, (32, 64), 65536, 106, 256, 1536, (24, 12), 16, 2, True,
           architected_flat_scratch=True),
)
# fmt: on


@functools.cache
def _by_name() -> dict[str, Target]:
    return {row.name: row for row in _ROWS}


def target_names() -> tuple[str, ...]:
    """Every target of the table, oldest first."""
    return tuple(_by_name())


def target(name: str) -> Target:
    """The target so named. Raises DeviceError for one that is not in the table."""
    found = _by_name().get(name)
    if found is None:
        raise DeviceError(name, "no such AMD target", remedy=f"expected one of {', '.join(target_names())}")
    return found


@dataclass(frozen=True, slots=True)
class TargetId:
    """A processor and the settings that its code must be built for.

    Spelled as HIP's ``gcnArchName`` is: ``gfx90a:sramecc+:xnack-`` (LLVM User Guide for AMDGPU, "Target ID").
    A setting that is not named suits either.
    """

    target: Target
    settings: tuple[str, ...] = ()

    @property
    def features(self) -> tuple[str, ...]:
        """The settings as LLVM's target features: ``+sramecc``, ``-xnack``."""
        return tuple(setting[-1] + setting[:-1] for setting in self.settings)


_SETTINGS = frozenset(name + sign for name in ("sramecc", "xnack") for sign in "+-")


def target_id(name: str) -> TargetId:
    """Read a target id. Raises DeviceError for a target that is not in the table, or another setting."""
    processor, *settings = name.split(":")
    for setting in settings:
        if setting not in _SETTINGS:
            known = ", ".join(sorted(_SETTINGS))
            raise DeviceError(name, f"no such target setting: {setting!r}", remedy=f"expected one of {known}")
    return TargetId(target(processor), tuple(settings))


def target_of_machine(elf_machine: int) -> Target | None:
    """The target of an ELF header's ``EF_AMDGPU_MACH``, or None."""
    return next((row for row in _ROWS if row.elf_machine == elf_machine), None)


def default_wave_size(target: Target) -> int:
    """The target's own, or 64 where it has both and ``ZLUDA_WAVE64_MODE`` asks for it."""
    return 64 if config.load().wave64_mode == "1" and 64 in target.wave_sizes else target.wave_size
