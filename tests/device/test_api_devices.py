"""``zluda.open_device``: names and options, modules, arrays, and what is said of wrong arguments."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from kernels import BROKEN, MODULE, add
from python_device import PythonDevice

import zluda
from zluda.device import api, resolve
from zluda.device.cuda import libcuda
from zluda.errors import DeviceError, Error, LaunchError, PtxError, UnsupportedError

WIDE = """
.visible .entry wide(.param .u8 a, .param .u16 b, .param .f64 c, .param .align 4 .b8 d[12]) { ret; }
"""


def wide(device: PythonDevice, grid: Any, block: Any, packed: bytes) -> None:
    device.seen = (grid, block, packed)  # type: ignore[attr-defined]


@pytest.fixture
def below(monkeypatch: pytest.MonkeyPatch) -> PythonDevice:
    below = PythonDevice({"add": add, "wide": wide})
    monkeypatch.setitem(api._OPEN, "cpu", lambda *options: below)
    return below


@pytest.fixture
def device(below: PythonDevice) -> Iterator[api.Device]:
    with zluda.open_device("cpu") as device:
        yield device


class TestNames:
    def test_auto_says_what_it_took(self, below: PythonDevice, caplog: pytest.LogCaptureFixture) -> None:
        with caplog.at_level(logging.INFO, "zluda"), zluda.open_device() as device:
            assert device.name == "cpu"
        assert "device auto is cpu" in caplog.text

    def test_full_names(self) -> None:
        assert [resolve(n) for n in ("auto", "cpu", "cuda", "cuda:03")] == ["cpu", "cpu", "cuda:0", "cuda:3"]

    @pytest.mark.parametrize("name", ["cuda", "nvptx"])
    def test_those_without_a_driver_say_so(self, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(libcuda, "load", lambda: libcuda.LibCuda("libcuda-that-is-not-there.so"))
        with pytest.raises(DeviceError, match="cannot load libcuda-that-is-not-there"):
            zluda.open_device(name)

    @pytest.mark.parametrize("name", ["", "gpu", "cuda:x", "cpu:0", "CPU"])
    def test_others_are_unknown(self, name: str) -> None:
        with pytest.raises(DeviceError, match="no such device; expected auto, cpu, interpreter, cuda:N"):
            zluda.open_device(name)


class TestOptions:
    @pytest.mark.parametrize(
        "option",
        [
            {"numerics": "envelope"},
            {"numerics": "x"},
            {"check": "race"},
            {"check": "init"},
            {"contract": "x"},
        ],
    )
    def test_what_is_not_built_is_named(self, below: PythonDevice, option: dict[str, Any]) -> None:
        (name, value), *_ = option.items()
        with pytest.raises(UnsupportedError, match=f"{name}='{value}'.*device cpu; expected"):
            zluda.open_device("cpu", **option)

    def test_the_defaults_by_name(self, below: PythonDevice) -> None:
        zluda.open_device("cpu", numerics="nvidia", check="none", contract="auto").close()

    def test_are_keywords(self) -> None:
        with pytest.raises(TypeError):
            zluda.open_device("cpu", "nvidia")  # type: ignore[misc]


class TestArrays:
    @pytest.mark.parametrize(
        "values",
        [
            np.arange(12, dtype=np.float32).reshape(3, 4),
            np.arange(12).reshape(3, 4).T,
            np.float64(2.5),
            np.zeros((0, 3), np.int8),
            np.array([(1, 2.0)], dtype=[("a", "i2"), ("b", "f8")]),
        ],
        ids=["matrix", "transposed", "scalar", "empty", "records"],
    )
    def test_go_in_and_out(self, device: api.Device, values: Any) -> None:
        array = device.array(values)
        result = array.numpy()
        assert result.dtype == values.dtype and result.shape == np.shape(values)
        assert (result == values).all() and array.nbytes == values.nbytes
        assert result.flags.writeable

    def test_empty_takes_a_shape(self, device: api.Device) -> None:
        assert device.empty(3, np.int16).shape == (3,)
        assert device.empty((2, 3), "f4").nbytes == 24
        for wrong in (-1, (1, -2), (1.5,)):
            with pytest.raises(Error, match="expected integers"):
                device.empty(wrong, np.int8)  # type: ignore[arg-type]
        with pytest.raises(Error, match="cannot hold object"):
            device.array(np.array([None]))

    def test_free(self, device: api.Device, below: PythonDevice) -> None:
        array = device.array(np.ones(3))
        array.free()
        assert below.memory == {}
        for action in (array.free, array.numpy):
            with pytest.raises(Error, match="was freed"):
                action()


class TestModules:
    def test_from_text_and_bytes(self, device: api.Device) -> None:
        assert device.load_module(MODULE).kernel_names == ["add", "other"]
        assert device.load_module(MODULE.encode()).kernel_names == ["add", "other"]

    def test_unknown_kernels(self, device: api.Device) -> None:
        with pytest.raises(Error, match=r"no kernel 'x' in m\.ptx; it has add, other"):
            device.load_module(MODULE, file="m.ptx").kernel("x")

    def test_a_bad_kernel_alone_is_lost(self, device: api.Device) -> None:
        module = device.load_module(MODULE + BROKEN, file="m.ptx")
        module.kernel("add")
        with pytest.raises(PtxError, match=r"m\.ptx:\d+:\d+.*frobnicate"):
            module.kernel("broken")

    def test_what_is_no_image(self, device: api.Device) -> None:
        with pytest.raises(DeviceError, match="machine code only"):
            device.load_module(bytes.fromhex("50ed55ba01001000") + bytes(8))
        with pytest.raises(Error, match="cannot load a int"):
            device.load_module(5)  # type: ignore[arg-type]


class TestLaunch:
    def test_runs(self, device: api.Device) -> None:
        x, y = device.array(np.arange(4, dtype="f4")), device.array(np.ones(4, "f4"))
        device.load_module(MODULE).kernel("add").launch(grid=(1, 1, 1), block=(32, 1, 1), args=[x, y, 4])
        device.synchronize()
        assert (x.numpy() == np.arange(4) + 1).all()

    def test_packs_by_the_layout(self, device: api.Device, below: PythonDevice) -> None:
        kernel = device.load_module(MODULE + WIDE).kernel("wide")
        kernel.launch(grid=2, block=[3, 4], args=[-1, np.uint16(0x1234), np.float64(1), b"twelve bytes"])
        grid, block, packed = below.seen  # type: ignore[attr-defined]
        assert (grid, block) == ((2, 1, 1), (3, 4, 1))
        assert packed == b"\xff\0\x34\x12" + bytes(4) + np.float64(1).tobytes() + b"twelve bytes"
        assert [(p.name, p.offset, p.size) for p in kernel.parameters] == [
            ("a", 0, 1),
            ("b", 2, 2),
            ("c", 8, 8),
            ("d", 16, 12),
        ]

    @pytest.mark.parametrize(
        ("args", "message"),
        [
            ([], r"0 arguments; expected 4 \(a, b, c, d\)"),
            ([256, 1, 1, bytes(12)], r"argument 0 \(a\): the integer 256; expected one from -128 to 255"),
            ([1, np.uint8(1), 1, bytes(12)], r"argument 1 \(b\): a uint8 of 1 bytes; expected 2 bytes"),
            ([1, 1, 1.5, bytes(12)], r"argument 2 \(c\): a float; expected .*numpy\.float32\(2\)"),
            ([1, 1, True, bytes(12)], r"argument 2 \(c\): a bool"),
            ([1, 1, np.zeros(1), bytes(12)], r"argument 2 \(c\): a ndarray; expected a device array"),
            ([1, 1, 1, 7], r"argument 3 \(d\): an integer; expected 12 bytes"),
            ([1, 1, 1, bytes(11)], r"argument 3 \(d\): a bytes of 11 bytes; expected 12 bytes"),
            ([1, 1, 1, None], r"argument 3 \(d\): a NoneType"),
        ],
    )
    def test_arguments_are_checked(self, device: api.Device, args: list[Any], message: str) -> None:
        kernel = device.load_module(MODULE + WIDE).kernel("wide")
        with pytest.raises(LaunchError, match=rf"kernel wide: {message}"):
            kernel.launch(grid=1, block=1, args=args)

    def test_arrays_must_be_live_pointers_of_this_device(self, device: api.Device) -> None:
        kernel = device.load_module(MODULE + WIDE).kernel("wide")
        array = device.array(np.ones(1))
        with pytest.raises(LaunchError, match="an array, which is a pointer of 8 bytes; expected 2 bytes"):
            kernel.launch(grid=1, block=1, args=[1, array, 1, bytes(12)])
        other = api.Device(PythonDevice({}))  # type: ignore[arg-type]
        with pytest.raises(LaunchError, match="of another device"):
            kernel.launch(grid=1, block=1, args=[1, 1, other.array(np.ones(1)), bytes(12)])
        array.free()
        with pytest.raises(LaunchError, match="was freed"):
            kernel.launch(grid=1, block=1, args=[1, 1, array, bytes(12)])

    @pytest.mark.parametrize("shape", [0, -1, (), (1, 1, 1, 1), (1, 0), (1.0,), True, None, "1"])
    def test_shapes_are_checked(self, device: api.Device, shape: Any) -> None:
        kernel = device.load_module(MODULE).kernel("add")
        for named in ({"grid": shape, "block": 1}, {"grid": 1, "block": shape}):
            with pytest.raises(LaunchError, match="expected one to three positive integers"):
                kernel.launch(args=[0, 0, 0], **named)

    def test_shared_bytes_is_checked(self, device: api.Device) -> None:
        with pytest.raises(LaunchError, match="shared_bytes is -1"):
            device.load_module(MODULE).kernel("add").launch(grid=1, block=1, args=[0, 0, 0], shared_bytes=-1)


class TestEnd:
    def test_nothing_works_after_close(self, device: api.Device) -> None:
        array, kernel = device.array(np.ones(1)), device.load_module(MODULE).kernel("add")
        device.close()
        device.close()
        launch: Any = lambda: kernel.launch(grid=1, block=1, args=[0, 0, 0])  # noqa: E731
        load: Any = lambda: device.load_module(MODULE)  # noqa: E731
        for action in (array.numpy, array.free, device.synchronize, launch, load):
            with pytest.raises(DeviceError, match="closed"):
                action()
        assert repr(device) == "<zluda device cpu (closed)>"
