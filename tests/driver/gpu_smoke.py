"""What the native driver and the ``cuda`` device do on a real GPU: ``python tests/driver/gpu_smoke.py``.

Each check prints a line; the exit status is 1 if any failed. Also collected by ``test_native_gpu.py``.
"""

from __future__ import annotations

import random
import struct
import sys
import time
import traceback
from collections.abc import Callable

from zluda.compiler import tensor_map
from zluda.compiler.tensor_map import Tensor
from zluda.driver import CudaError, Driver, LaunchAttribute
from zluda.driver.descriptors import Copy, CopyEnd, MemoryType, Resource, ResourceType, Texture
from zluda.tracefile.arrays import CUBE, LAYERED, SURFACE, ArrayShape

PTX = b"""
.version 8.0
.target sm_80
.address_size 64
.global .align 4 .u32 counter = 7;
.visible .entry add(.param .u64 out, .param .u32 value, .param .u64 pointers)
{
    .reg .b64 %rd<5>;
    .reg .b32 %r<6>;
    ld.param.u64 %rd1, [out];
    ld.param.u32 %r1, [value];
    mov.u32 %r2, %tid.x;
    mul.wide.u32 %rd2, %r2, 4;
    add.s64 %rd3, %rd1, %rd2;
    ld.global.u32 %r3, [%rd3];
    add.u32 %r4, %r3, %r1;
    st.global.u32 [%rd3], %r4;
    ret;
}
.visible .entry fault()
{
    .reg .b64 %rd<2>;
    .reg .b32 %r<2>;
    mov.u64 %rd1, 8;
    mov.u32 %r1, 1;
    st.global.u32 [%rd1], %r1;
    ret;
}
"""
# Where another process's cudaMalloc might have been.
PLACES = (0x7F12_3440_0000, 0x7F7F_F000_0000, 0x7FFF_A000_0000, 0x5_0000_0000)


def context(driver: Driver) -> int:
    """A current primary context."""
    driver.cuInit()
    device = driver.cuDeviceGet(0)
    driver.cuCtxSetCurrent(driver.cuDevicePrimaryCtxRetain(device))
    return device


def describe(driver: Driver) -> str:
    device = context(driver)
    capability = [driver.cuDeviceGetAttribute(a, device) for a in (75, 76)]
    assert driver.cuDeviceGetCount() == 1 and len(driver.cuDeviceGetUuid(device)) == 16
    memory = driver.cuDeviceTotalMem(device) >> 30
    return f"{driver.cuDeviceGetName(device)}, {capability}, {memory} GiB, CUDA {driver.cuDriverGetVersion()}"


def run_kernel(driver: Driver) -> str:
    context(driver)
    address = driver.cuMemAlloc(128)
    for load, get in (
        (driver.cuModuleLoadData, driver.cuModuleGetFunction),
        (driver.cuLibraryLoadData, driver.cuLibraryGetKernel),
    ):
        handle = load(PTX)
        function = get(handle, "add")
        layout = [(s.offset, s.size) for s in driver.parameter_layout(function)]
        assert layout == [(0, 8), (8, 4), (16, 8)], layout
        assert driver.cuFuncGetName(function) == "add"
        driver.cuMemcpyHtoD(address, struct.pack("<32I", *range(32)))
        packed = struct.pack("<QI4xQ", address, 5, 0)
        stream = driver.cuStreamCreate(1)
        start, end = driver.cuEventCreate(), driver.cuEventCreate()
        driver.cuEventRecord(start, stream)
        driver.cuLaunchKernel(function, (1, 1, 1), (32, 1, 1), 0, stream, packed)
        cluster = LaunchAttribute(4, struct.pack("<3I", 1, 1, 1))
        driver.cuLaunchKernel(function, (1, 1, 1), (32, 1, 1), 0, stream, packed, attributes=[cluster])
        driver.cuEventRecord(end, stream)
        driver.cuStreamSynchronize(stream)
        assert driver.cuStreamQuery(stream) and driver.cuEventElapsedTime(start, end) > 0
        got = struct.unpack("<32I", driver.cuMemcpyDtoH(address, 128))
        assert got == tuple(n + 10 for n in range(32)), got
    variable, size = driver.cuLibraryGetGlobal(handle, "counter")
    assert driver.cuMemcpyDtoH(variable, size) == (7).to_bytes(4, "little")
    driver.cuMemsetD32(address, 9, 32)
    assert driver.cuMemcpyDtoHAsync(address, 8, 0) == struct.pack("<2I", 9, 9)
    return "module and library, with and without attributes, streams, events, globals, memset"


def together(driver: Driver) -> str:
    """Clusters there is room for; tensor maps as this program makes them too."""
    context(driver)
    function = driver.cuModuleGetFunction(driver.cuModuleLoadData(PTX), "add")
    room = driver.cuOccupancyMaxActiveClusters(function, (256, 1, 1), 0, (2, 1, 1))
    largest = driver.cuOccupancyMaxPotentialClusterSize(function, (256, 1, 1), 0)
    address = driver.cuMemAlloc(1 << 16)
    tensor = Tensor(7, address, [64, 32, 4], [256, 8192], [1, 2, 1], 0, 3, 2, 1)
    made = driver.cuTensorMapEncodeTiled(tensor, [16, 8, 1])
    assert made == tensor_map.encode_tiled(tensor, [16, 8, 1]), made.hex()
    spread = driver.cuTensorMapEncodeIm2col(tensor, [-1], [1], 16, 24)
    assert spread == tensor_map.encode_im2col(tensor, [-1], [1], 16, 24), spread.hex()
    moved = driver.cuTensorMapReplaceAddress(made, address + 4096)
    assert moved == (address + 4096).to_bytes(8, "little") + made[8:], moved.hex()
    driver.cuMemFree(address)
    return f"room for {room} clusters of 2 blocks, {largest} blocks at most; maps agree"


def wrong_image(driver: Driver) -> str:
    context(driver)
    try:
        driver.cuModuleLoadData(b".version 8.0\n.target sm_80\n.address_size 64\nnonsense;\n")
    except CudaError as error:
        return str(error)
    raise AssertionError("loaded")


def placed(address: int) -> str:
    """Memory at a wanted address, through a runner, with its randomisation off."""
    from zluda.runner import start

    with start("cuda:0", reservations=[(address + 512, 3 << 20)]) as runner:
        driver = runner.driver
        context(driver)
        assert driver.cuMemAlloc(2 << 20, address=address + 512) == address + 512
        function = driver.cuModuleGetFunction(driver.cuModuleLoadData(PTX), "add")
        driver.cuMemsetD32(address + 512, 1, 32)
        packed = struct.pack("<QI4xQ", address + 512, 2, 0)
        driver.cuLaunchKernel(function, (1, 1, 1), (32, 1, 1), 0, 0, packed)
        driver.cuCtxSynchronize()
        assert runner.memory.read(address + 512, 8) == struct.pack("<2I", 3, 3)
        driver.cuMemFree(address + 512)
        return "allocated, written by a kernel, read"


def failing_kernel() -> str:
    from zluda.runner import start

    with start("cuda:0") as runner:
        driver = runner.driver
        context(driver)
        driver.cuLaunchKernel(
            driver.cuModuleGetFunction(driver.cuModuleLoadData(PTX), "fault"), (1, 1, 1), (1, 1, 1), 0, 0, b""
        )
        try:
            driver.cuCtxSynchronize()
        except CudaError as error:
            assert error.launch is not None and error.launch.kernel == "fault"
            return str(error)
    raise AssertionError("a store to address 8 succeeded")


def python_interface() -> str:
    import numpy

    import zluda

    with zluda.open_device("cuda:0") as device:
        x = device.array(numpy.arange(32, dtype=numpy.uint32))
        device.load_module(PTX).kernel("add").launch(grid=1, block=32, args=[x, numpy.uint32(5), 0])
        assert (x.numpy() == numpy.arange(32) + 5).all()
    return "open_device, load_module, launch, numpy"


def throughput(driver: Driver) -> str:
    context(driver)
    function = driver.cuModuleGetFunction(driver.cuModuleLoadData(PTX), "add")
    packed = struct.pack("<QI4xQ", driver.cuMemAlloc(128), 5, 0)
    began, count = time.perf_counter(), 20000
    for _ in range(count):
        driver.cuLaunchKernel(function, (1, 1, 1), (32, 1, 1), 0, 0, packed)
    driver.cuCtxSynchronize()
    return f"{(time.perf_counter() - began) / count * 1e6:.1f} µs a launch in this process"


SHAPES = (
    ArrayShape(1000, 0, 0, 0x20, 1),
    ArrayShape(300, 70, 0, 0x20, 4, SURFACE),
    ArrayShape(33, 17, 9, 0x02, 2),
    ArrayShape(40, 0, 5, 0x01, 4, LAYERED),
    ArrayShape(24, 24, 12, 0x10, 1, LAYERED | CUBE),
    ArrayShape(64, 48, 0, 0x20, 2, SURFACE, 6),
    ArrayShape(20, 10, 3, 0x08, 4, LAYERED, 4),
    ArrayShape(30, 20, 10, 0x10, 4, 0, 5),
)


def arrays(driver: Driver) -> str:
    """What is written into arrays of every kind by ranges of their linearised contents comes back so."""
    context(driver)
    draw = random.Random(1)
    for shape in SHAPES:
        create = driver.cuMipmappedArrayCreate if shape.levels > 1 else driver.cuArray3DCreate
        array = create(shape)
        expected = bytearray(draw.randbytes(shape.size))
        driver.write_array(array, 0, expected)
        for _ in range(20):
            texel = shape.texel_bytes
            start = draw.randrange(0, shape.size, texel)
            stop = min(shape.size, start + texel * draw.randrange(1, shape.size // texel))
            part = draw.randbytes(stop - start)
            driver.write_array(array, start, part)
            expected[start:stop] = part
            start = draw.randrange(0, stop, texel)
            assert driver.read_array(array, start, stop - start) == expected[start:stop], shape.text
        assert driver.read_array(array, 0, shape.size) == expected, shape.text
        (driver.cuMipmappedArrayDestroy if shape.levels > 1 else driver.cuArrayDestroy)(array)
    return f"{len(SHAPES)} kinds of arrays"


def objects(driver: Driver) -> str:
    """Descriptors of objects come back as they went in; handles as the driver counts them."""
    context(driver)
    shape = ArrayShape(64, 32, 0, 0x20, 1, SURFACE)
    array = driver.cuArray3DCreate(shape)
    assert driver.cuArray3DGetDescriptor(array) == shape
    rows = bytes(range(200)) * 4
    box = Copy(CopyEnd(), CopyEnd(8, 3, 0, MemoryType.ARRAY, array=array), 80, 10)
    driver.cuMemcpy2D(box, rows)
    assert driver.cuMemcpy3D(Copy(box.destination, CopyEnd(), 80, 10)) == rows
    texture = Texture((1, 2, 3), 1, 2, 4, 0, 0.5, 0.0, 3.0, (0.25, 0.5, 0.75, 1.0))
    resource = Resource(ResourceType.ARRAY, array)
    handles = [driver.cuTexObjectCreate(resource, texture), driver.cuSurfObjectCreate(resource)]
    assert driver.cuTexObjectGetResourceDesc(handles[0]) == resource
    assert driver.cuSurfObjectGetResourceDesc(handles[1]) == resource
    got = driver.cuTexObjectGetTextureDesc(handles[0])
    memory = driver.cuMemAlloc(4096)
    linear = Resource(ResourceType.LINEAR, memory, 0x20, 1, 4096)
    handles += [driver.cuTexObjectCreate(linear, Texture()) for _ in range(2)]
    assert driver.cuTexObjectGetResourceDesc(handles[2]) == linear
    driver.cuTexObjectDestroy(handles[0])
    handles.append(driver.cuTexObjectCreate(resource, texture))
    for handle in handles[2:]:
        driver.cuTexObjectDestroy(handle)
    driver.cuSurfObjectDestroy(handles[1])
    return f"handles {', '.join(map(hex, handles))}; {got}"


def checks() -> list[tuple[str, Callable[[], str]]]:
    """Name and check; each returns what it saw or raises."""
    from zluda.driver.native import NativeDriver

    driver = NativeDriver(0)
    of_driver = [describe, run_kernel, together, wrong_image, throughput, arrays, objects]
    result: list[tuple[str, Callable[[], str]]] = [(c.__name__, lambda c=c: c(driver)) for c in of_driver]  # type: ignore[misc]
    result += [(f"placed at {place:#x}", lambda place=place: placed(place)) for place in PLACES]  # type: ignore[misc]
    return [*result, ("failing_kernel", failing_kernel), ("python_interface", python_interface)]


def main() -> int:
    """Run them all."""
    failed = 0
    for name, check in checks():
        try:
            print(f"ok    {name}: {check()}")
        except Exception:
            failed += 1
            print(f"FAIL  {name}:\n{traceback.format_exc()}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
