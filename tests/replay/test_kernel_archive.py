"""Kernel archives become traces that replay."""

from __future__ import annotations

import io
import json
import struct
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import zstandard
from kernels import MODULE, add, added, ramp
from python_device import PythonDevice, PythonKernel, PythonSession

import zluda
from zluda.device.base import Dim3
from zluda.diff.results import Verdict
from zluda.errors import TraceError
from zluda.replay.kernel_archive import convert
from zluda.tracefile import open_trace

COUNT = 40
Sessions = Callable[[Mapping[str, PythonKernel]], list[PythonSession]]

MANIFEST = {
    "kernel_name": "add",
    "outputs": [],
    "config": {"grid_dim": [2, 1, 1], "block_dim": [32, 1, 1], "shared_mem_bytes": 0},
    "parameters": [
        {"pointer_offsets": [{"offset_in_param": 0, "offset_in_buffer": 8}]},
        {"pointer_offsets": [{"offset_in_param": 0, "offset_in_buffer": 0}]},
        {"pointer_offsets": []},
    ],
}
X, Y = ramp(COUNT), ramp(COUNT, 0.5)
FILES = {
    "manifest.json": json.dumps(MANIFEST).encode(),
    "source.ptx": MODULE.encode(),
    "param_0.bin": struct.pack("<Q", 0x1111),
    "param_1.bin": struct.pack("<Q", 0x2222),
    "param_2.bin": struct.pack("<I", COUNT),
    "param_0_ptr_0_pre.bin": bytes(8) + X,
    "param_0_ptr_0_post.bin": bytes(8) + added(X, Y),
    "param_1_ptr_0_pre.bin": Y,
    "param_1_ptr_0_post.bin": Y,
}


def archive(path: Path, files: Mapping[str, bytes]) -> Path:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as tar:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    path.write_bytes(zstandard.ZstdCompressor().compress(data.getvalue()))
    return path


def test_the_launch_replays(tmp_path: Path, sessions: Sessions) -> None:
    trace = tmp_path / "trace.bin"
    convert(archive(tmp_path / "kernel_3_add.tar.zst", FILES), trace)
    with open_trace(trace) as opened:
        (launch,) = opened.iter_launches()
        assert (launch.kernel, launch.grid, launch.block) == ("add", (2, 1, 1), (32, 1, 1))
        assert opened.meta["imported_from"] == "kernel_3_add.tar.zst"
    sessions({"add": add})
    result = zluda.replay(trace, device="cpu")
    assert [one.verdict for one in result.results] == [Verdict.IDENTICAL]
    assert result.results[0].buffers


def test_a_wrong_kernel_differs(tmp_path: Path, sessions: Sessions) -> None:
    def nothing(device: PythonDevice, grid: Dim3, block: Dim3, packed: bytes) -> None:
        pass

    trace = tmp_path / "trace.bin"
    convert(archive(tmp_path / "kernel_3_add.tar.zst", FILES), trace)
    sessions({"add": nothing})
    assert zluda.replay(trace, device="cpu").verdict is Verdict.DIFFERS


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"manifest.json": None}, "has no manifest.json"),
        ({"source.ptx": None}, "has no source.ptx"),
        ({"param_1.bin": None}, "has no param_1.bin"),
        ({"param_1.bin": b"1"}, "param_1.bin has 1 bytes, the PTX 8"),
        ({"param_0_ptr_0_pre.bin": None}, "has no param_0_ptr_0_pre.bin"),
        ({"param_0_ptr_0_post.bin": b"1"}, "bytes before and 1 after"),
        ({"manifest.json": b"{"}, "not that of a kernel archive"),
        ({"manifest.json": b"{}"}, "not that of a kernel archive.*kernel_name"),
        ({"manifest.json": json.dumps({**MANIFEST, "parameters": []}).encode()}, "0 parameters"),
        ({"manifest.json": json.dumps({**MANIFEST, "kernel_name": "no"}).encode()}, "'no' is not in its"),
        ({"source.ptx": b"no PTX"}, "is not in its source.ptx"),
    ],
)
def test_what_is_missing_or_wrong_is_named(
    tmp_path: Path, change: dict[str, bytes | None], message: str
) -> None:
    files = {name: data for name, data in {**FILES, **change}.items() if data is not None}
    with pytest.raises(TraceError, match=message):
        convert(archive(tmp_path / "kernel.tar.zst", files), tmp_path / "trace.bin")


def changed(**config: object) -> dict[str, bytes]:
    return {"manifest.json": json.dumps({**MANIFEST, "config": {**MANIFEST["config"], **config}}).encode()}  # type: ignore[dict-item]


def pointing(**pointer: object) -> dict[str, bytes]:
    first = {"pointer_offsets": [{"offset_in_param": 0, "offset_in_buffer": 0, **pointer}]}
    parameters = [first, *MANIFEST["parameters"][1:]]  # type: ignore[index]
    return {"manifest.json": json.dumps({**MANIFEST, "parameters": parameters}).encode()}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (changed(grid_dim=[0, 1, 1]), "x is 0; expected a whole number from 1 to 2147483647"),
        (changed(grid_dim=[1, 1 << 40, 1]), "y is 1099511627776"),
        (changed(grid_dim=[1, 1]), "not that of a kernel archive"),
        (changed(grid_dim="xyz"), "not that of a kernel archive"),
        (changed(block_dim=[1.5, 1, 1]), "x is 1.5"),
        (changed(block_dim=[1024, 1024, 1]), "a block of 1048576 threads"),
        (changed(block_dim={"x": True, "y": 1, "z": 1}), "x is True"),
        (changed(shared_mem_bytes=-1), "shared_mem_bytes is -1"),
        (pointing(offset_in_param=-8), "offset_in_param is -8; expected a whole number from 0 to 0"),
        (pointing(offset_in_param=1 << 70), "offset_in_param is"),
        (pointing(offset_in_buffer=1 << 40), "offset_in_buffer is 1099511627776"),
        ({"manifest.json": b'["kernel_name"]'}, "not that of a kernel archive"),
        ({"manifest.json": b"[" * 100_000}, "not that of a kernel archive"),
        (
            {"manifest.json": json.dumps({**MANIFEST, "parameters": ["a", "b", "c"]}).encode()},
            "AttributeError",
        ),
        ({"manifest.json": b"\xff\xfe"}, "not that of a kernel archive"),
    ],
)
def test_a_hostile_manifest_is_refused_and_costs_nothing(
    tmp_path: Path, change: dict[str, bytes], message: str
) -> None:
    packed = archive(tmp_path / "kernel.tar.zst", {**FILES, **change})
    with pytest.raises(TraceError, match=message):
        convert(packed, tmp_path / "trace.bin")
    assert list(tmp_path.iterdir()) == [packed]


def member(kind: bytes, name: str = "manifest.json", size: int = 0, link: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.size, info.linkname = kind, size, link
    return info


@pytest.mark.parametrize(
    ("one", "message"),
    [
        (member(tarfile.SYMTYPE, link="/etc/passwd"), "no plain file"),
        (member(tarfile.LNKTYPE, link="nothing"), "no plain file"),
        (member(tarfile.FIFOTYPE), "no plain file"),
        (member(tarfile.CHRTYPE), "no plain file"),
        (member(tarfile.REGTYPE, size=1 << 40), "holds more than"),
    ],
)
def test_hostile_members_are_refused(tmp_path: Path, one: tarfile.TarInfo, message: str) -> None:
    packed = tmp_path / "kernel.tar.zst"
    data = one.tobuf() + bytes(1024)
    packed.write_bytes(zstandard.ZstdCompressor().compress(data))
    with pytest.raises(TraceError, match=message):
        convert(packed, tmp_path / "trace.bin")


def test_an_archive_cut_off_anywhere_is_refused(tmp_path: Path) -> None:
    packed = archive(tmp_path / "kernel.tar.zst", FILES)
    whole = packed.read_bytes()
    for kept in range(0, len(whole) - 1, max(1, len(whole) // 12)):
        packed.write_bytes(whole[:kept])
        with pytest.raises(TraceError, match=r"kernel\.tar\.zst"):
            convert(packed, tmp_path / "trace.bin")
    assert list(tmp_path.iterdir()) == [packed]


def test_directories_in_names_lead_nowhere(tmp_path: Path) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    packed = archive(inside / "kernel.tar.zst", {f"../../{name}": data for name, data in FILES.items()})
    convert(packed, inside / "trace.bin")
    assert list(tmp_path.iterdir()) == [inside] and len(list(inside.iterdir())) == 2


def test_other_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "kernel.tar.zst"
    path.write_bytes(b"not an archive")
    with pytest.raises(TraceError, match=r"no \.tar\.zst"):
        convert(path, tmp_path / "trace.bin")
    with pytest.raises(TraceError, match="No such file"):
        convert(tmp_path / "none.tar.zst", tmp_path / "trace.bin")
