"""What a HIP device answers for ``CUdevice_attribute``: its own figures where code can rely on them.

A warp has 32 lanes and the compute capability is what PTX was written for, whatever the GPU: those stay
CUDA's (``zluda.device.cpu.attributes``).
"""

from __future__ import annotations

# CUdevice_attribute → hipDeviceAttribute_t without its prefix.
OWN: dict[int, str] = {
    1: "MaxThreadsPerBlock",
    8: "MaxSharedMemoryPerBlock",
    13: "ClockRate",
    16: "MultiprocessorCount",
    36: "MemoryClockRate",
    37: "MemoryBusWidth",
    38: "L2CacheSize",
    39: "MaxThreadsPerMultiProcessor",
}
SHARED_MEMORY_OPTIN = 97
"""AMD has no opt-in: the limit of a block is the limit."""
