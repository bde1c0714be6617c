"""Run texture cases on an NVIDIA GPU and keep its results: ``python probe.py -o DIR`` (NumPy and libcuda).

Each case's results are an array of u32 (n × results) under its name in ``DIR/textures-N.npz``; errors and
handles go to ``DIR/textures.json``.
"""

from __future__ import annotations

import argparse
import ctypes as c
import json
import pathlib
import shutil
import subprocess
import sys
import time
from typing import Any

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from texture_cases.cases import all_cases
from texture_cases.spec import FORMATS, Array, Case, Texture

u32, size_t, ptr = c.c_uint, c.c_size_t, c.c_void_p


class ArrayDescriptor(c.Structure):
    _fields_ = [(n, size_t) for n in ("width", "height", "depth")] + [
        (n, u32) for n in ("format", "channels", "flags")
    ]


class Linear(c.Structure):
    _fields_ = [("address", c.c_uint64), ("format", u32), ("channels", u32), ("bytes", size_t)]


class Pitch(c.Structure):
    _fields_ = [
        *(("address", c.c_uint64), ("format", u32), ("channels", u32)),
        *((n, size_t) for n in ("width", "height", "pitch")),
    ]


class Resource(c.Union):
    _fields_ = [("array", ptr), ("linear", Linear), ("pitch", Pitch), ("reserved", c.c_int * 32)]


class ResourceDescriptor(c.Structure):
    _fields_ = [("type", u32), ("res", Resource), ("flags", u32)]


class TextureDescriptor(c.Structure):
    _fields_ = [
        *(("address", u32 * 3), ("filter", u32), ("flags", u32), ("anisotropy", u32), ("mip_filter", u32)),
        *(("bias", c.c_float), ("min_lod", c.c_float), ("max_lod", c.c_float)),
        *(("border", c.c_float * 4), ("reserved", c.c_int * 12)),
    ]


_SIDE: list[tuple[str, Any]] = [
    *(("x", size_t), ("y", size_t), ("z", size_t), ("lod", size_t), ("type", u32), ("host", ptr)),
    *(("device", c.c_uint64), ("array", ptr), ("reserved", ptr), ("pitch", size_t), ("height", size_t)),
]


class Copy3D(c.Structure):
    _fields_ = (
        [("src_" + n, t) for n, t in _SIDE]
        + [("dst_" + n, t) for n, t in _SIDE]
        + [(n, size_t) for n in ("width_bytes", "height", "depth")]
    )


LAYERED, SURFACE, CUBEMAP, GATHER = 1, 2, 4, 8


class CudaFailure(Exception):
    pass


class Gpu:
    """The driver API, as little of it as is needed."""

    def __init__(self) -> None:
        self.lib = c.CDLL("libcuda.so.1")
        self("cuInit", 0)
        device, context = c.c_int(), ptr()
        self("cuDeviceGet", c.byref(device), 0)
        self("cuDevicePrimaryCtxRetain", c.byref(context), device)
        self("cuCtxSetCurrent", context)
        self.kernels: dict[str, Any] = {}

    def __call__(self, entry: str, *arguments: Any) -> None:
        status = getattr(self.lib, entry)(*arguments)
        if status:
            name = c.c_char_p()
            self.lib.cuGetErrorName(status, c.byref(name))
            raise CudaFailure(f"{entry}: {(name.value or b'?').decode()}")

    def upload(self, data: Array) -> c.c_uint64:
        address = c.c_uint64()
        self("cuMemAlloc_v2", c.byref(address), size_t(max(data.nbytes, 16)))
        self("cuMemcpyHtoD_v2", address, data.ctypes.data_as(ptr), size_t(data.nbytes))
        return address

    def kernel(self, text: str) -> Any:
        if text not in self.kernels:
            log = c.create_string_buffer(4096)
            options = (c.c_int * 2)(5, 6)  # CU_JIT_ERROR_LOG_BUFFER, its size
            option_values = (ptr * 2)(c.cast(log, ptr), 4096)
            module, function = ptr(), ptr()
            try:
                self("cuModuleLoadDataEx", c.byref(module), text.encode() + b"\0", 2, options, option_values)
            except CudaFailure as error:
                raise CudaFailure(f"{error}: {log.value.decode(errors='replace')}") from None
            self("cuModuleGetFunction", c.byref(function), module, b"probe")
            self.kernels[text] = function
        return self.kernels[text]


def kernel_text(case: Case, target: str = "sm_80") -> str:
    """A kernel in which each thread executes the case's instruction on its row of words."""
    k, total = case.words.shape[1], 5
    wide = case.width
    load = "".join(f"ld.global.b32 %w{i}, [%in+{4 * i}];\n" for i in range(k))
    body = case.form.replace("%t", "%tex")
    for i in range(4):
        body = body.replace(f"%r{i}", f"%q{i}")
    store = "".join(
        f"cvt.u32.u16 %o{i}, %q{i};\nst.global.b32 [%out+{4 * i}], %o{i};\n"
        if wide == 16
        else f"st.global.b32 [%out+{4 * i}], %q{i};\n"
        if wide == 32
        else f"st.global.b64 [%out+{4 * i}], %q{i // 2};\n"
        for i in range(0, 4, 1 if wide < 64 else 2)
    )
    return f""".version 8.3
.target {target}
.address_size 64
.visible .entry probe(.param .u64 tex, .param .u64 in, .param .u64 out, .param .u32 n)
{{
.reg .b64 %tex, %in, %out, %off;
.reg .b32 %w<{k + 1}>, %o<5>, %i, %n, %c, %d;
.reg .b{wide} %q<4>;
.reg .pred %p, %end;
ld.param.u64 %tex, [tex]; ld.param.u64 %in, [in]; ld.param.u64 %out, [out]; ld.param.u32 %n, [n];
mov.u32 %i, %ctaid.x; mov.u32 %c, %ntid.x; mov.u32 %d, %tid.x; mad.lo.u32 %i, %i, %c, %d;
setp.ge.u32 %end, %i, %n;
@%end ret;
mul.wide.u32 %off, %i, {4 * k}; add.u64 %in, %in, %off;
mul.wide.u32 %off, %i, {4 * total}; add.u64 %out, %out, %off;
{load}
setp.eq.u32 %p, %i, %i;
{"".join(f"mov.b{wide} %q{i}, 0x5555;" for i in range(4))}
{body}
{store}
selp.u32 %o4, 1, 0, %p;
st.global.b32 [%out+16], %o4;
ret;
}}
"""


class Made:
    """A texture or surface object on the GPU, with what is to be freed."""

    def __init__(self, gpu: Gpu, texture: Texture) -> None:
        self.gpu, self.texture = gpu, texture
        self.array, self.mipmapped, self.memory = ptr(), ptr(), c.c_uint64()
        resource = ResourceDescriptor()
        if texture.resource == "array":
            self._make_array(resource)
        else:
            self._make_memory(resource)
        self.handle = c.c_uint64()
        if texture.surface:
            gpu("cuSurfObjectCreate", c.byref(self.handle), c.byref(resource))
            return
        descriptor = TextureDescriptor()
        descriptor.address[:] = texture.address
        descriptor.filter, descriptor.mip_filter = texture.filter, texture.mip_filter
        descriptor.flags, descriptor.anisotropy = texture.flags, texture.anisotropy
        descriptor.bias = texture.bias
        descriptor.min_lod, descriptor.max_lod = texture.lod
        descriptor.border[:] = texture.border
        gpu("cuTexObjectCreate", c.byref(self.handle), c.byref(resource), c.byref(descriptor), None)

    def _make_array(self, resource: ResourceDescriptor) -> None:
        t = self.texture
        width, height, depth = t.size
        flags = (SURFACE if t.surface else 0) | (GATHER if t.gather else 0) | (CUBEMAP if t.cube else 0)
        if t.slices and (not t.cube or t.slices > 6):
            flags |= LAYERED
        d = ArrayDescriptor(width, height, t.slices or depth, FORMATS[t.format][0], t.channels, flags)
        if t.levels > 1:
            self.gpu("cuMipmappedArrayCreate", c.byref(self.mipmapped), c.byref(d), u32(t.levels))
            resource.type, resource.res.array = 1, self.mipmapped
            for level in range(t.levels):
                part = ptr()
                self.gpu("cuMipmappedArrayGetLevel", c.byref(part), self.mipmapped, u32(level))
                self._copy(part, t.texels(level), write=True)
        else:
            self.gpu("cuArray3DCreate_v2", c.byref(self.array), c.byref(d))
            resource.type, resource.res.array = 0, self.array
            self._copy(self.array, t.texels(), write=True)

    def _copy(self, array: ptr, data: Array, *, write: bool) -> None:
        z, y, x, channels = data.shape
        row = x * channels * data.itemsize
        copy = Copy3D(width_bytes=row, height=y, depth=z)
        host, device = ("src_", "dst_") if write else ("dst_", "src_")
        for name, value in (("type", 1), ("host", data.ctypes.data), ("pitch", row), ("height", y)):
            setattr(copy, host + name, value)
        setattr(copy, device + "type", 3)
        setattr(copy, device + "array", array.value)
        self.gpu("cuMemcpy3D_v2", c.byref(copy))

    def _make_memory(self, resource: ResourceDescriptor) -> None:
        t = self.texture
        data = t.texels()
        number = FORMATS[t.format][0]
        if t.resource == "linear":
            self.memory = self.gpu.upload(data)
            resource.type = 2
            resource.res.linear = Linear(self.memory, number, t.channels, data.nbytes)
            return
        row = data.shape[2] * data.shape[3] * data.itemsize
        pitch = -(-row // 512) * 512
        padded = np.full((data.shape[1], pitch), 0xA5, np.uint8)
        padded[:, :row] = data.view(np.uint8).reshape(data.shape[1], row)
        self.memory = self.gpu.upload(padded)
        resource.type = 3
        resource.res.pitch = Pitch(self.memory, number, t.channels, data.shape[2], data.shape[1], pitch)

    def contents(self) -> Array:
        """What a surface's array holds now."""
        data = np.zeros(self.texture.shape(), self.texture.dtype)
        self._copy(self.array, data, write=False)
        return data

    def free(self) -> None:
        self.gpu("cuSurfObjectDestroy" if self.texture.surface else "cuTexObjectDestroy", self.handle)
        if self.mipmapped:
            self.gpu("cuMipmappedArrayDestroy", self.mipmapped)
        if self.array:
            self.gpu("cuArrayDestroy", self.array)
        if self.memory:
            self.gpu("cuMemFree_v2", self.memory)


def run_case(gpu: Gpu, case: Case) -> tuple[dict[str, Array], int]:
    """The case's arrays by name suffix, and the handle's value. Raises CudaFailure."""
    kernel = gpu.kernel(kernel_text(case))
    made = Made(gpu, case.texture)
    n = len(case.words)
    source = gpu.upload(np.ascontiguousarray(case.words))
    out = np.zeros((n, 5), np.uint32)
    target = gpu.upload(out)
    arguments = [made.handle, source, target, u32(n)]
    pointers = (ptr * 4)(*(c.cast(c.byref(a), ptr) for a in arguments))
    gpu("cuLaunchKernel", kernel, -(-n // 256), 1, 1, 256, 1, 1, 0, None, pointers, None)
    gpu("cuCtxSynchronize")
    gpu("cuMemcpyDtoH_v2", out.ctypes.data_as(ptr), target, size_t(out.nbytes))
    keep = [*range(case.results)] + ([4] if "%p" in case.form else [])
    found = {"": out[:, keep]}
    if case.texture.surface and not case.results:
        found[".after"] = made.contents()
    made.free()
    for address in (source, target):
        gpu("cuMemFree_v2", address)
    return found, made.handle.value


def _trap(gpu: Gpu, name: str) -> int:
    """One case that may end the context: its results or its error on standard output."""
    case = next(c for c in all_cases() if c.name == name)
    try:
        found, _ = run_case(gpu, case)
        print({suffix: array.ravel()[:64].tolist() for suffix, array in found.items()})
    except CudaFailure as error:
        print(error)
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", required=True, type=pathlib.Path)
    parser.add_argument("--only", default="", help="cases whose name has this in it")
    parser.add_argument("--trap", default="", help=argparse.SUPPRESS)
    parser.add_argument("--after", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.o.mkdir(parents=True, exist_ok=True)
    gpu = Gpu()
    if options.trap:
        return _trap(gpu, options.trap)
    parts: list[dict[str, Array]] = [{}]
    notes: dict[str, Any] = {"errors": {}, "handles": {}, "traps": {}}
    start, size, last = time.time(), 0, ""
    waiting = bool(options.after)
    for case in all_cases():
        skipped, waiting = waiting, waiting and case.name != options.after
        if skipped or options.only not in case.name:
            continue
        if case.name.startswith("trap."):
            command = [sys.executable, __file__, "-o", str(options.o), "--trap", case.name]
            notes["traps"][case.name] = subprocess.run(command, capture_output=True, text=True).stdout
            continue
        try:
            found, handle = run_case(gpu, case)
        except CudaFailure as error:
            notes["errors"][case.name] = str(error)
            if "cuCtxSynchronize" in str(error):
                last = case.name
                break
            continue
        notes["handles"][case.name] = handle
        for suffix, array in found.items():
            size += array.nbytes
            if size > 14 << 20:
                parts.append({})
                size = array.nbytes
            parts[-1][case.name + suffix] = array
    notes["seconds"] = time.time() - start
    if last:  # the context is lost: the rest in a new process
        more = [
            sys.executable,
            __file__,
            "-o",
            str(options.o / "rest"),
            "--only",
            options.only,
            "--after",
            last,
        ]
        print(subprocess.run(more, capture_output=True, text=True).stdout)
        for path in sorted((options.o / "rest").glob("*.npz")):
            with np.load(path) as archive:
                parts.append({name: archive[name] for name in archive.files})
        rest = json.loads((options.o / "rest" / "textures.json").read_text())
        for kind in ("errors", "handles", "traps"):
            notes[kind] |= rest[kind]
        shutil.rmtree(options.o / "rest")
    for i, part in enumerate(parts):
        np.savez_compressed(options.o / f"textures-{i}.npz", **part)
    (options.o / "textures.json").write_text(json.dumps(notes, indent=1))
    print(f"{sum(map(len, parts))} results, {len(notes['errors'])} errors, {notes['seconds']:.1f} s")
    for name, said in {**notes["errors"], **notes["traps"]}.items():
        print(f"{name}: {said}"[:300])
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
