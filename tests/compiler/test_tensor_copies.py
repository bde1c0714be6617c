"""Tensor maps and tensor copies, against what an H200 did (``data/tensor_copies.json.gz``)."""

from __future__ import annotations

import functools
import gzip
import json
import random
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy
import pytest
from support import tensor_copies

import zluda
from zluda.compiler import tensor_map
from zluda.compiler.tensor_map import Tensor, TensorMapError
from zluda.device.api import Array, Device
from zluda.errors import LaunchError

RECORDED: dict[str, Any] = json.loads(
    gzip.decompress((Path(__file__).parent / "data" / "tensor_copies.json.gz").read_bytes())
)
BOX = 32768  # bytes of shared memory a kernel copies into
BASE = 65536  # of a tensor in its megabyte of memory
HEAD = ".version 8.6\n.target sm_90a\n.address_size 64\n"
PARAMETERS = (
    ".param .align 64 .b8 map[128], .param .u64 out, .param .align 4 .b8 c[20], .param .align 4 .b8 o[16]"
)


def encode(arguments: dict[str, Any]) -> bytes:
    a = arguments
    tensor = Tensor(
        a["type"],
        a["address"],
        a["dims"],
        a["strides"],
        a["steps"],
        a["interleave"],
        a["swizzle"],
        a["l2"],
        a["fill"],
    )
    if "box" in a:
        return tensor_map.encode_tiled(tensor, a["box"])
    return tensor_map.encode_im2col(tensor, a["lower"], a["upper"], a["channels"], a["pixels"])


@pytest.mark.parametrize("kind", ["tiled", "im2col"])
def test_maps_are_the_drivers_byte_for_byte(kind: str) -> None:
    """And what the driver refuses is refused."""
    for row in RECORDED["maps"]:
        if row["kind"] != kind:
            continue
        if row["map"]:
            assert encode(row["arguments"]).hex() == row["map"], row["arguments"]
        else:
            with pytest.raises(TensorMapError):
                encode(row["arguments"])


# --- copies ------------------------------------------------------------------------------------------


def words() -> bytes:
    """The tensor's bytes: a hash a word, every 17th subnormal, every 19th infinite or NaN."""
    found = []
    for i in range((1 << 20) // 4):
        w = (i * 2654435761 ^ (i >> 7)) & 0xFFFFFFFF
        w &= 0x807FFFFF if i % 17 == 0 else 0xFFFFFFFF
        found.append(w | (0x7F800000 if i % 19 == 0 else 0))
    return struct.pack(f"<{len(found)}I", *found)


def pattern() -> bytes:
    """The box's bytes, of a store."""
    found = []
    for i in range(0, BOX, 4):
        v = (i * 1640531527 + 12345) & 0xFFFFFFFF
        found.append(v ^ v >> 9)
    return struct.pack(f"<{len(found)}I", *found)


def kernel_text(what: str, dimensions: int, im2col: bool) -> str:
    """Loads into a box of 0xA5 and copies it out, or stores a box that is a pattern."""
    coordinates = "{" + ", ".join(f"c{k}" for k in range(dimensions)) + "}"
    read = "".join(f"ld.param.s32 c{k}, [c+{4 * k}];\n" for k in range(5))
    read += "".join(f"ld.param.b16 o{k}, [o+{4 * k}];\n" for k in range(3))
    fill = "mov.u32 v, 0xA5A5A5A5;"
    if what != "load":
        fill = "mad.lo.u32 v, i, 1640531527, 12345; shr.u32 n, v, 9; xor.b32 v, v, n;"
    loop = f"add.u32 i, i, 128; setp.lt.u32 p, i, {BOX};"
    offsets = ", {" + ", ".join(f"o{k}" for k in range(dimensions - 2)) + "}" if im2col else ""
    if what == "load":
        mode = ".im2col" if im2col else ".tile"
        move = f"""
mbarrier.init.shared.b64 [bar], 1; ld.param.u32 v, [o+12]; mbarrier.arrive.expect_tx.shared.b64 _, [bar], v;
cp.async.bulk.tensor.{dimensions}d.shared::cluster.global{mode}.mbarrier::complete_tx::bytes
  [buf], [d, {coordinates}], [bar]{offsets};
L: mbarrier.test_wait.parity.shared.b64 p, [bar], 0; @!p bra L;"""
    else:
        mode = ".im2col_no_offs" if im2col else ".tile"
        name = "cp.async.bulk.tensor" if what == "store" else "cp.reduce.async.bulk.tensor"
        op = "" if what == "store" else f".{what}"
        move = f"""
{name}.{dimensions}d.global.shared::cta{op}{mode}.bulk_group [d, {coordinates}], [buf];
cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;"""
    copy_out = f"""
O: cvt.u64.u32 a, i; mov.u64 s, buf; add.u64 s, s, a; ld.shared.u32 v, [s];
add.u64 d, g, a; st.global.u32 [d], v;
{loop} @p bra O;"""
    return f"""{HEAD}.visible .entry k({PARAMETERS})
{{ .shared .align 1024 .b8 buf[{BOX}]; .shared .align 8 .b64 bar;
.reg .pred p, q; .reg .b32 t, i, v, n, c<5>; .reg .b16 o<3>; .reg .b64 a, d, s, g;
{read} mov.u32 t, %tid.x; shl.b32 i, t, 2;
F: cvt.u64.u32 a, i; mov.u64 s, buf; add.u64 s, s, a; {fill} st.shared.u32 [s], v; {loop} @p bra F;
bar.sync 0; setp.ne.u32 q, t, 0; @q bra W; mov.u64 d, map; cvta.param.u64 d, d;
{move}
W: bar.sync 0; ld.param.u64 g, [out]; shl.b32 i, t, 2;
{copy_out if what == "load" else ""}
ret; }}"""


class Machine:
    def __init__(self, name: str) -> None:
        self.device: Device = zluda.open_device(name)
        self.tensor: Array = self.device.array(numpy.frombuffer(words(), numpy.uint8))
        self.stored: Array = self.device.empty(1 << 20, numpy.uint8)
        self.box: Array = self.device.empty(BOX, numpy.uint8)

    @functools.cache  # noqa: B019
    def kernel(self, what: str, dimensions: int, im2col: bool) -> Any:
        return self.device.load_module(kernel_text(what, dimensions, im2col)).kernel("k")

    def run(self, row: dict[str, Any]) -> bytes:
        """What is in the box, or in the tensor's memory, behind a recorded copy."""
        load, im2col = row["what"] == "load", "box" not in row["case"]
        memory = self.tensor if load else self.stored
        if not load:
            self.device._device.fill(memory.address, b"\x5a", 1 << 20)
        place = bytearray(bytes.fromhex(row["map"]))
        place[:8] = (memory.address + BASE).to_bytes(8, "little")
        at = struct.pack("<5i", *(*row["at"], 0, 0, 0, 0)[:5])
        more = struct.pack("<4I", *(*row.get("offsets", ()), 0, 0, 0)[:3], row.get("size", 0))
        kernel = self.kernel(row["what"], row["case"]["rank"], im2col)
        kernel.launch(grid=1, block=32, args=[bytes(place), self.box, at, more])
        return (self.box if load else self.stored).numpy().tobytes()


@pytest.fixture(scope="module")
def cpu() -> Machine:
    return Machine("cpu")


def hold(machine: Machine, rows: list[dict[str, Any]]) -> None:
    for row in rows:
        if "error" in row:  # CUDA_ERROR_ILLEGAL_INSTRUCTION
            with pytest.raises(LaunchError, match="illegal instruction"):
                machine.run(row)
        else:
            assert zlib.crc32(machine.run(row)) == row["crc"], row


def test_loads_are_the_gpus_bit_for_bit(cpu: Machine) -> None:
    hold(cpu, [r for r in RECORDED["copies"] if r["what"] == "load"])


def test_stores_and_reductions_are_the_gpus_bit_for_bit(cpu: Machine) -> None:
    hold(cpu, [r for r in RECORDED["copies"] if r["what"] != "load"])


def test_the_reference_is_the_gpu_too() -> None:
    """So that what the recording lacks may be held to it."""
    tensor = words()[BASE:]
    for row in RECORDED["copies"]:
        if row["what"] != "load" or "error" in row:
            continue
        case, size = row["case"], tensor_copies.SIZES[row["case"]["type"]]
        box = bytearray(b"\xa5" * BOX)
        for offset, byte in tensor_copies.elements(case, row["at"], row.get("offsets", ())):
            inside = byte is not None
            value = (
                tensor_copies.loaded(case, tensor[byte : byte + size])
                if inside
                else tensor_copies.filler(case)
            )
            box[offset : offset + size] = value
        assert zlib.crc32(bytes(box)) == row["crc"], row


def test_an_emulated_gpu_agrees() -> None:
    """A few of one kernel each: tiles in and out, with slices of channels or without."""
    machine = Machine("gfx1030")
    tiles = [r for r in RECORDED["copies"] if r["case"]["rank"] == 3 and "box" in r["case"]]
    for kind in (False, True):
        rows = [r for r in tiles if ("interleave" in r["case"]) == kind]
        hold(machine, [r for r in rows if r["what"] == "load"][:8])
        hold(machine, [r for r in rows if r["what"] == "store" and "crc" in r][:3])


def test_rows_by_number(cpu: Machine) -> None:
    """``tile::gather4`` and ``tile::scatter4``: four rows of a matrix, wherever they are."""
    width, height = 24, 9
    source = numpy.arange(width * height, dtype=numpy.float32).reshape(height, width)
    copied = cpu.device.array(numpy.zeros((height, width), numpy.float32))
    given = cpu.device.array(source)
    text = f"""{HEAD.replace("sm_90a", "sm_100a")}
.visible .entry k(.param .align 64 .b8 from[128], .param .align 64 .b8 to[128])
{{ .shared .align 128 .b8 buf[256]; .shared .align 8 .b64 bar; .reg .b64 a, b; .reg .pred p; .reg .b32 t;
mov.u32 t, %tid.x; setp.ne.u32 p, t, 0; @p bra E;
mov.u64 a, from; cvta.param.u64 a, a; mov.u64 b, to; cvta.param.u64 b, b;
mbarrier.init.shared.b64 [bar], 1; mbarrier.arrive.expect_tx.shared.b64 _, [bar], 128;
cp.async.bulk.tensor.2d.shared::cta.global.tile::gather4.mbarrier::complete_tx::bytes
  [buf], [a, {{4, 7, 0, 12, 3}}], [bar];
L: mbarrier.test_wait.parity.shared.b64 p, [bar], 0; @!p bra L;
cp.async.bulk.tensor.2d.global.shared::cta.tile::scatter4.bulk_group [b, {{8, 1, 2, 20, 8}}], [buf];
cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;
E: ret; }}"""

    def matrix(array: Array) -> bytes:
        return tensor_map.encode_tiled(Tensor(7, array.address, [width, height], [4 * width], [1, 1]), [8, 1])

    cpu.device.load_module(text).kernel("k").launch(grid=1, block=32, args=[matrix(given), matrix(copied)])
    expected = numpy.zeros((height, width), numpy.float32)
    for into, out_of in ((1, 7), (2, 0), (8, 3)):  # row 12 of the one and 20 of the other are not there
        expected[into, 8:16] = source[out_of, 4:12]
    assert (copied.numpy() == expected).all()


def test_changing_a_map_writes_the_gpus_bits(cpu: Machine) -> None:
    immediate = {"elemtype", "interleave_layout", "swizzle_mode", "fill_mode"}
    rows = random.Random(1).sample(RECORDED["replaced"], 60)
    for row in rows:
        wide = row["field"] in ("global_address", "global_stride")
        value = str(row["value"]) if row["field"] in immediate else ("w" if wide else "v")
        ordinal = f"{row['ordinal']}, " if row["ordinal"] is not None else ""
        form = f"tensormap.replace.tile.{row['field']}.shared::cta.b1024.{'b64' if wide else 'b32'}"
        words_in = "".join(
            f"ld.param.u64 a, [map+{8 * k}]; st.shared.u64 [m+{8 * k}], a;\n" for k in range(16)
        )
        words_out = "".join(
            f"ld.shared.u64 a, [m+{8 * k}]; st.global.u64 [g+{8 * k}], a;\n" for k in range(16)
        )
        text = f"""{HEAD}
.visible .entry k(.param .align 64 .b8 map[128], .param .u64 out, .param .u64 value)
{{ .shared .align 128 .b8 m[128]; .reg .b32 v; .reg .b64 w, a, g;
ld.param.u64 w, [value]; cvt.u32.u64 v, w; ld.param.u64 g, [out];
{words_in} {form} [m], {ordinal}{value}; {words_out} ret; }}"""
        kernel = cpu.device.load_module(text).kernel("k")
        kernel.launch(
            grid=1, block=1, args=[bytes.fromhex(row["before"]), cpu.box, numpy.uint64(row["value"])]
        )
        assert cpu.box.numpy()[:128].tobytes().hex() == row["after"], row
