"""``printf``, ``malloc``, ``free`` and ``assert`` in device code, on the CPU and on emulated AMD GPUs.

``services.txt`` is what the C library prints of the same formats, and an H200.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import zluda
from zluda.compiler.services import HEAP, LIBRARIES, LOCKS, OUTPUT, linked
from zluda.device.amd import AmdDevice
from zluda.device.api import Device, Module
from zluda.device.cpu import CpuDevice
from zluda.device.output import Output
from zluda.device.services import LIMITS, PRINTF_FIFO_SIZE, Services
from zluda.ptx import parse_module

HERE = Path(__file__).parent
PTX = (HERE / "services.ptx").read_text()
FORMATS = (HERE / "services.txt").read_text()


def _nightly(name: str) -> object:
    return pytest.param(name, marks=pytest.mark.nightly)


@pytest.fixture(scope="module", params=["cpu", "gfx1030", _nightly("gfx90a")])
def loaded(request: pytest.FixtureRequest) -> Iterator[tuple[Device, Module]]:
    with zluda.open_device(request.param) as device:
        yield device, device.load_module(PTX, file="services.ptx")


@pytest.fixture(scope="module", params=["cpu", _nightly("gfx1030"), _nightly("gfx90a")])
def loaded_longer(request: pytest.FixtureRequest) -> Iterator[tuple[Device, Module]]:
    """As ``loaded``, for kernels that take an emulator seconds."""
    with zluda.open_device(request.param) as device:
        yield device, device.load_module(PTX, file="services.ptx")


@pytest.fixture
def cpu() -> Iterator[tuple[Device, Module]]:
    """A device of one's own: its heap is fresh."""
    with zluda.open_device("cpu") as device:
        yield device, device.load_module(PTX, file="services.ptx")


def test_every_conversion_prints_as_the_c_library_does(
    loaded: tuple[Device, Module], capsys: pytest.CaptureFixture[str]
) -> None:
    device, module = loaded
    text, count = device.array(np.frombuffer(b"device\0\0", np.uint8)), device.array(np.zeros(1, np.int32))
    module.kernel("print_formats").launch(grid=1, block=1, args=[text, count])
    device.synchronize()
    assert capsys.readouterr().out == FORMATS
    assert count.numpy()[0] == FORMATS_ARGUMENTS


FORMATS_ARGUMENTS = 0 + 6 + 8 + 5 + 9 + 3 + 5 + 5 + 1 + 1 + 4 + 6
"""A star takes an argument of its own, ``%%`` none; an H200 returns the same."""


def test_formats_and_strings_may_lie_in_a_thread_s_own_memory(
    loaded: tuple[Device, Module], capsys: pytest.CaptureFixture[str]
) -> None:
    device, module = loaded
    count = device.array(np.zeros(4, np.int32))
    module.kernel("print_local").launch(grid=1, block=4, args=[count])
    device.synchronize()
    assert capsys.readouterr().out == "".join(f"local {i} and {i}\n" for i in range(4))
    assert count.numpy().tolist() == [2] * 4


def test_a_specifier_without_its_argument_is_printed_as_it_stands(
    loaded_longer: tuple[Device, Module], capsys: pytest.CaptureFixture[str]
) -> None:
    device, module = loaded_longer
    count = device.array(np.zeros(3, np.int32))
    module.kernel("print_many").launch(grid=1, block=1, args=[count])
    device.synchronize()
    numbers = " ".join(map(str, range(1, 33)))
    assert capsys.readouterr().out == f"{numbers} %d %d\n%y %q %.*f %hhd %\n"
    assert count.numpy().tolist() == [32, 0, -1]


def test_threads_apart_print_in_order(
    loaded_longer: tuple[Device, Module], capsys: pytest.CaptureFixture[str]
) -> None:
    device, module = loaded_longer
    module.kernel("print_threads").launch(grid=2, block=40, args=[np.int32(7)])
    device.synchronize()
    lines = capsys.readouterr().out.splitlines()
    for block in range(2):
        assert [line for line in lines if line.startswith(f"block {block}")] == [
            f"block {block} thread {thread}" for thread in range(0, 40, 7)
        ]


def test_allocations_never_overlap_and_are_freed(loaded: tuple[Device, Module]) -> None:
    device, module = loaded
    blocks, threads = (8, 128) if device.name == "cpu" else (2, 64)
    n = blocks * threads
    pointers, sizes = device.array(np.zeros(n, np.uint64)), device.array(np.zeros(n, np.int32))
    wrong = device.array(np.full(n, -1, np.int32))
    for _ in range(2):  # the second time in what the first has freed
        module.kernel("allocate").launch(grid=blocks, block=threads, args=[pointers, sizes, np.int32(150)])
        starts, lengths = pointers.numpy(), sizes.numpy()
        assert (starts % 16 == 0).all() and (lengths > 0).all()
        order = np.argsort(starts)
        assert (starts[order][1:] - starts[order][:-1] >= lengths[order][:-1]).all()
        module.kernel("verify_and_free").launch(
            grid=blocks, block=threads, args=[pointers, sizes, wrong, np.int32(n)]
        )
        assert not wrong.numpy().any()


def allocated(device: Device, module: Module, size: int, times: int = 1) -> list[int]:
    pointers = device.array(np.zeros(times, np.uint64))
    kernel = module.kernel("allocate_one")
    kernel.launch(grid=1, block=1, args=[pointers, np.uint64(size), np.int32(times)])
    return [int(p) for p in pointers.numpy()]


def test_no_room_gives_null_but_no_bytes_something(cpu: tuple[Device, Module]) -> None:
    device, module = cpu
    assert allocated(device, module, 1 << 40) == [0]
    assert allocated(device, module, (8 << 20) + 1) == [0]
    megabytes = allocated(device, module, 1 << 20, 10)
    assert [p != 0 for p in megabytes] == [True] * 8 + [False] * 2
    module.kernel("free_one").launch(grid=1, block=1, args=[np.uint64(megabytes[3])])
    assert allocated(device, module, 1 << 20) == [megabytes[3]]
    module.kernel("free_one").launch(grid=1, block=1, args=[np.uint64(megabytes[5])])
    assert allocated(device, module, 0) != [0]


def test_the_whole_heap_can_be_had_again_after_small_pieces(cpu: tuple[Device, Module]) -> None:
    device, module = cpu
    for pointer in allocated(device, module, 64 << 10, 128):
        module.kernel("free_one").launch(grid=1, block=1, args=[np.uint64(pointer)])
    assert allocated(device, module, 8 << 20) != [0]


def test_freed_memory_is_used_again_by_many_threads(loaded_longer: tuple[Device, Module]) -> None:
    device, module = loaded_longer
    blocks, rounds = (8, 64) if device.name == "cpu" else (1, 8)
    size = (8 << 20) // (32 * rounds) if device.name != "cpu" else 4096
    failures = device.array(np.full(blocks * 32, -1, np.int32))
    module.kernel("allocate_and_free").launch(
        grid=blocks, block=32, args=[failures, np.int32(size), np.int32(rounds)]
    )
    assert not failures.numpy().any()


def test_freeing_twice_or_what_was_never_given_ends_the_launch(loaded: tuple[Device, Module]) -> None:
    device, module = loaded
    (pointer,) = allocated(device, module, 100)
    kernel = module.kernel("free_one")
    kernel.launch(grid=1, block=1, args=[np.uint64(pointer)])
    for bad in (pointer, pointer + 8, 64, 1 << 63):
        with pytest.raises(zluda.LaunchError, match=r"free\(\) of what is no live allocation of malloc\(\)"):
            kernel.launch(grid=1, block=1, args=[np.uint64(bad)])
    kernel.launch(grid=1, block=1, args=[np.uint64(0)])


def test_an_assertion_names_its_place_and_ends_the_launch(loaded: tuple[Device, Module]) -> None:
    device, module = loaded
    values = np.arange(64, dtype=np.int32)
    seen = device.array(np.zeros(64, np.int32))
    module.kernel("asserts").launch(grid=2, block=32, args=[device.array(values), seen])
    assert seen.numpy().all()
    values[37] = -1
    said = (
        r"services\.cu:\d+: void asserts\(const int \*, int \*\): block: \[1,0,0\], thread: \[5,0,0\] "
        r"Assertion `values\[i\] >= 0 && \"values are not negative\"` failed\."
    )
    with pytest.raises(zluda.LaunchError, match=said) as caught:
        module.kernel("asserts").launch(grid=2, block=32, args=[device.array(values), seen])
    assert "device-side assert triggered" in caught.value.message
    assert caught.value.block == (1, 0, 0)


def test_only_what_a_module_declares_is_linked() -> None:
    plain = parse_module(".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k() { ret; }")
    assert linked(plain) is plain
    prints = parse_module(PTX.replace("malloc", "other").replace("free", "others"))
    assert OUTPUT in linked(prints).variables and HEAP not in linked(prints).variables
    whole = linked(parse_module(PTX))
    assert all(whole.defines(name) for library in LIBRARIES[:2] for name in library.functions)
    assert LOCKS not in whole.variables and LOCKS in linked(parse_module(WIDE)).variables
    assert linked(whole) is whole


def test_a_module_may_have_a_malloc_of_its_own(cpu: tuple[Device, Module]) -> None:
    device, _ = cpu
    own = """.version 8.0
.target sm_80
.address_size 64
.func (.param .b64 result) malloc(.param .b64 size)
{ .reg .b64 %r; ld.param.b64 %r, [size]; add.s64 %r, %r, 7; st.param.b64 [result], %r; ret; }
.visible .entry k(.param .u64 out)
{ .reg .b64 %p, %r; .param .b64 size; .param .b64 result;
  ld.param.u64 %p, [out]; cvta.to.global.u64 %p, %p; st.param.b64 [size], 5;
  call (result), malloc, (size); ld.param.b64 %r, [result]; st.global.u64 [%p], %r; ret; }"""
    out = device.array(np.zeros(1, np.uint64))
    device.load_module(own).kernel("k").launch(grid=1, block=1, args=[out])
    assert out.numpy()[0] == 12


def test_two_modules_share_the_heap(cpu: tuple[Device, Module]) -> None:
    device, module = cpu
    (pointer,) = allocated(device, module, 100)
    other = device.load_module(PTX.replace("free_one", "free_other"))
    other.kernel("free_other").launch(grid=1, block=1, args=[np.uint64(pointer)])
    with pytest.raises(zluda.LaunchError, match="no live allocation"):
        module.kernel("free_one").launch(grid=1, block=1, args=[np.uint64(pointer)])


def test_a_runner_prints_and_asserts_too(capsys: pytest.CaptureFixture[str]) -> None:
    with zluda.open_device("cpu", isolate=True) as device:
        module = device.load_module(PTX)
        module.kernel("print_threads").launch(grid=1, block=32, args=[np.int32(31)])
        device.synchronize()
        assert capsys.readouterr().out == "block 0 thread 0\nblock 0 thread 31\n"
        values, seen = device.array(np.full(1, -1, np.int32)), device.array(np.zeros(1, np.int32))
        with pytest.raises(zluda.LaunchError, match=r"services\.cu:\d+: void asserts"):
            module.kernel("asserts").launch(grid=1, block=1, args=[values, seen])


def test_device_side_launch_is_refused_by_name(cpu: tuple[Device, Module]) -> None:
    device, _ = cpu
    text = """.version 8.0
.target sm_80
.address_size 64
.extern .func (.param .b32 result) cudaLaunchDeviceV2 (.param .b64 buffer, .param .b64 stream);
.visible .entry k() { .reg .b32 %r; .param .b64 a; .param .b64 b; .param .b32 result;
  st.param.b64 [a], 0; st.param.b64 [b], 0; call (result), cudaLaunchDeviceV2, (a, b); ret; }"""
    with pytest.raises(zluda.UnsupportedError, match="cudaLaunchDeviceV2, device-side launch"):
        device.load_module(text).kernel("k").launch(grid=1, block=1)


@pytest.mark.parametrize("make", [CpuDevice, functools.partial(AmdDevice, "gfx1030")], ids=["cpu", "gfx1030"])
def test_the_oldest_output_is_lost_first_and_that_is_said(make: Callable[..., CpuDevice | AmdDevice]) -> None:
    """The buffer is circular, as CUDA's: of 64 lines the last that fit are there, in order."""
    device = make(threads=1)
    services = Services(device)
    code = device.load(parse_module(PTX))
    services.attach(code)
    services.ready({**LIMITS, PRINTF_FIFO_SIZE: 2000})  # 2048 bytes
    kernel = code.kernel("print_threads")
    device.launch(kernel, (1, 1, 1), (64, 1, 1), struct.pack("<i", 1))
    record = 24 + 2 * 8 + 24  # header, two arguments, "block %d thread %d\n" to whole words
    kept = 2048 // record
    output = services.take_output()
    assert output.text == "".join(f"block 0 thread {t}\n" for t in range(64 - kept, 64))
    assert output.complaint.startswith(f"{(64 - kept) * record} bytes of the oldest printf output")
    assert services.take_output().text == ""
    for _ in range(3):  # round the end of the buffer, nothing lost
        device.launch(kernel, (1, 1, 1), (64, 1, 1), struct.pack("<i", 6))
        sixths = "".join(f"block 0 thread {t}\n" for t in range(0, 64, 6))
        assert services.take_output() == Output(sixths)
    for _ in range(4):  # what several launches print shares it
        device.launch(kernel, (1, 1, 1), (64, 1, 1), struct.pack("<i", 6))
    assert services.take_output().text.splitlines() == (4 * sixths).splitlines()[-kept:]
    device.close()


WIDE = """.version 8.4
.target sm_90
.address_size 64
.visible .entry count(.param .u64 counters, .param .u32 rounds)
{ .reg .b64 %p, %low, %high; .reg .b32 %r<4>; .reg .pred %q; .reg .b128 %old, %new, %seen;
  ld.param.u64 %p, [counters]; ld.param.u32 %r3, [rounds]; mov.u32 %r1, %tid.x; and.b32 %r1, %r1, 3;
  mad.wide.u32 %p, %r1, 16, %p;
next:
  ld.global.v2.u64 {%low, %high}, [%p];
again:
  mov.b128 %old, {%low, %high};
  add.cc.u64 %low, %low, 0x4000000000000000; addc.u64 %high, %high, 1;
  mov.b128 %new, {%low, %high};
  atom.global.cas.b128 %seen, [%p], %old, %new;
  mov.b128 {%low, %high}, %seen;
  { .reg .b64 %x, %y; .reg .pred %s; mov.b128 {%x, %y}, %old;
    setp.ne.u64 %q, %x, %low; setp.ne.or.u64 %q, %y, %high, %q; }
  @%q bra again;
  sub.u32 %r3, %r3, 1; setp.ne.u32 %q, %r3, 0;
  @%q bra next;
  ret; }
"""


def test_many_lanes_count_in_sixteen_bytes(loaded: tuple[Device, Module]) -> None:
    """Two words that change together: a count, and a carry out of the low one every fourth time."""
    device, _ = loaded
    blocks, threads, rounds = (8, 64, 10) if device.name == "cpu" else (2, 64, 2)
    counters = device.array(np.zeros((4, 2), np.uint64))
    kernel = device.load_module(WIDE).kernel("count")
    kernel.launch(grid=blocks, block=threads, args=[counters, np.int32(rounds)])
    times = blocks * threads * rounds // 4
    assert counters.numpy().tolist() == [[times % 4 << 62, times + times // 4]] * 4


@pytest.mark.parametrize("name", ["cpu", _nightly("gfx1030")])
def test_services_work_where_accesses_are_checked(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with zluda.open_device(name, check="memory") as device:
        module = device.load_module(PTX)
        count = device.array(np.zeros(4, np.int32))
        module.kernel("print_local").launch(grid=1, block=4, args=[count])
        device.synchronize()
        assert capsys.readouterr().out == "".join(f"local {i} and {i}\n" for i in range(4))
        (pointer,) = allocated(device, module, 100)
        module.kernel("free_one").launch(grid=1, block=1, args=[np.uint64(pointer)])
