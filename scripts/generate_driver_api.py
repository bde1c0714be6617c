"""Derive ``zluda/driver/driver_api.json`` from CUDA's headers.

Usage: python scripts/generate_driver_api.py [--cuda /usr/local/cuda] [--output FILE]

The headers are preprocessed with every API version visible, the prototypes are read with one pattern, and
sizes and layouts come from a C program that the host compiler builds against the same headers. What a header
cannot say (which pointer is a host buffer and how long it is, which call only asks) stands in
``driver_api_tables.py``.

Output, per exported name: ``base`` (without version and default-stream suffix), ``effect`` (``query`` changes
nothing, ``hint`` changes speed at most, ``effect`` changes what a program computes), ``replay`` (the player
has a handler for it), ``special`` (what the recorder does beyond its parameters), and ``parameters``: name, C
``type``, ``direction`` (value, in, out, inout), ``pointee`` (bytes of fixed size behind the pointer, 0: none
or of variable size), ``bytes`` (of the value, where below 8), ``slot`` (index among integer argument words;
-1: passed in a vector register), and, for variable data, ``rule`` (string, buffer, image) with ``count`` (the
parameter that holds the number of elements) and ``unit`` (bytes of one element).
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from driver_api_tables import (
    BUFFERS,
    DIRECTIONS,
    HINTS,
    IMAGES,
    NOT_QUERIES,
    QUERIES,
    REPLAYED,
    SPECIALS,
    UNBOUNDED,
)

HEADERS = ("cuda.h", "cudaProfiler.h", "cudaGL.h", "cudaEGL.h", "cudaVDPAU.h")

# The graphics headers need headers of systems that need not be there; these few types are all they use.
FOREIGN_HEADERS = ("GL/gl.h", "EGL/egl.h", "EGL/eglext.h", "vdpau/vdpau.h")
FOREIGN_TYPES = """
typedef unsigned int GLuint; typedef unsigned int GLenum; typedef int EGLint;
typedef void *EGLImageKHR; typedef void *EGLStreamKHR; typedef void *EGLSyncKHR;
typedef unsigned int VdpDevice; typedef unsigned int VdpVideoSurface; typedef unsigned int VdpOutputSurface;
typedef int VdpGetProcAddress;
"""

PROTOTYPE = re.compile(r"\bCUresult\s+(cu[A-Z]\w*)\s*\(([^;{}]*?)\)\s*;", re.S)
SUFFIX = re.compile(r"(_v\d+)?(_pt(?:sz|ds))?$")

# Structures whose fields the recorder or the player reads.
LAYOUTS = {
    "CUlaunchConfig": """
        gridDimX gridDimY gridDimZ blockDimX blockDimY blockDimZ sharedMemBytes hStream attrs numAttrs
    """,
    "CUlaunchAttribute": "id value",
    "CUDA_KERNEL_NODE_PARAMS": """
        func gridDimX gridDimY gridDimZ blockDimX blockDimY blockDimZ sharedMemBytes
        kernelParams extra kern ctx
    """,
    "CUDA_MEMCPY2D": """
        srcXInBytes srcY srcMemoryType srcHost srcDevice srcArray srcPitch
        dstXInBytes dstY dstMemoryType dstHost dstDevice dstArray dstPitch WidthInBytes Height
    """,
    "CUDA_MEMCPY3D": """
        srcXInBytes srcY srcZ srcLOD srcMemoryType srcHost srcDevice srcArray srcPitch srcHeight
        dstXInBytes dstY dstZ dstLOD dstMemoryType dstHost dstDevice dstArray dstPitch dstHeight
        WidthInBytes Height Depth
    """,
    "CUDA_MEMSET_NODE_PARAMS": "dst pitch value elementSize width height",
    "CUDA_ARRAY_DESCRIPTOR": "Width Height Format NumChannels",
    "CUDA_ARRAY3D_DESCRIPTOR": "Width Height Depth Format NumChannels Flags",
    "CUDA_RESOURCE_DESC": """
        resType res.array.hArray res.mipmap.hMipmappedArray res.linear.devPtr res.linear.format
        res.linear.numChannels res.linear.sizeInBytes res.pitch2D.devPtr res.pitch2D.format
        res.pitch2D.numChannels res.pitch2D.width res.pitch2D.height res.pitch2D.pitchInBytes flags
    """,
    "CUDA_TEXTURE_DESC": """
        addressMode filterMode flags maxAnisotropy mipmapFilterMode mipmapLevelBias minMipmapLevelClamp
        maxMipmapLevelClamp borderColor
    """,
    "CUDA_RESOURCE_VIEW_DESC": """
        format width height depth firstMipmapLevel lastMipmapLevel firstLayer lastLayer
    """,
}


# --- reading the headers -----------------------------------------------------------------------------


class Headers:
    """The headers of one toolkit, preprocessed with every API version visible."""

    def __init__(self, cuda: Path, work: Path) -> None:
        self.work = work
        for name in FOREIGN_HEADERS:
            path = work / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
        self.include = [f"-I{cuda}/include", f"-I{work}"]
        self.preamble = "#include <stddef.h>\n#include <stdio.h>\n#define __CUDA_API_VERSION_INTERNAL 1\n"
        self.preamble += FOREIGN_TYPES
        self.preamble += "".join(f"#include <{h}>\n" for h in HEADERS if (cuda / "include" / h).exists())

    def preprocess(self) -> str:
        return self._gcc(self.preamble, "-E", "-P").stdout

    def run(self, body: str) -> str:
        """Compile and run ``int main(void) { body }``; what it prints."""
        program = self.work / "sizes"
        self._gcc(f"{self.preamble}\nint main(void) {{\n{body}\nreturn 0; }}\n", "-w", "-o", str(program))
        return subprocess.run([program], check=True, capture_output=True, text=True).stdout

    def _gcc(self, source: str, *options: str) -> subprocess.CompletedProcess[str]:
        path = self.work / "source.c"
        path.write_text(source)
        command = ["gcc", *self.include, str(path), *options]
        result = subprocess.run(command, capture_output=True, text=True)
        if result.returncode:
            raise SystemExit(f"{' '.join(command)}:\n{result.stderr[:3000]}")
        return result


def split_parameters(text: str) -> list[tuple[str, str]]:
    """``(C type, name)`` of each parameter."""
    text = " ".join(text.split())
    if text in ("", "void"):
        return []
    parameters = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(.*?[\s*])(\w+)\s*(\[\d*\])?\s*", part)
        if not match:
            raise SystemExit(f"parameter without a name: {part!r}")
        kind = re.sub(r"\s*\*", " *", match[1].strip()).replace("* *", "**")
        parameters.append((kind + (" *" if match[3] else ""), match[2]))
    return parameters


def pointee_of(kind: str) -> str | None:
    """The type behind a pointer; None for a value, ``void``, text and functions."""
    if not kind.endswith("*"):
        return None
    inner = re.sub(r"^const ", "", kind[:-1].strip())
    return None if inner in ("void", "char") else inner


def base_name(name: str) -> str:
    """Without version and default-stream suffix: ``cuMemcpyHtoDAsync_v2_ptsz`` → ``cuMemcpyHtoDAsync``."""
    return SUFFIX.sub("", name)


# --- the tables applied ------------------------------------------------------------------------------


class Table:
    """Rows of one hand-written table; remembers which rows were used."""

    def __init__(self, title: str, rows: list[Any]) -> None:
        self.title, self.rows, self.used = title, rows, [False] * len(rows)

    def find(self, base: str, parameter: str) -> Any:
        found = None
        for index, row in enumerate(self.rows):
            if row[1] == parameter and fnmatch.fnmatchcase(base, row[0]):
                self.used[index] = True
                found = found or row
        return found

    def check(self) -> None:
        unused = [row for row, used in zip(self.rows, self.used, strict=True) if not used]
        if unused:
            raise SystemExit(f"{self.title}: rows that name nothing in the headers: {unused}")


def effect_of(base: str) -> str:
    if any(fnmatch.fnmatchcase(base, pattern) for pattern in NOT_QUERIES):
        return "effect"
    if base in HINTS:
        return "hint"
    return "query" if any(fnmatch.fnmatchcase(base, pattern) for pattern in QUERIES) else "effect"


class Generator:
    """Builds the JSON object from the headers and the tables."""

    def __init__(self, headers: Headers) -> None:
        self.prototypes = {
            name: split_parameters(text) for name, text in PROTOTYPE.findall(headers.preprocess())
        }
        self.sizes = self._measure(headers)
        self.layouts = self._layouts(headers)
        self.directions = Table("DIRECTIONS", DIRECTIONS)
        self.buffers = Table("BUFFERS", BUFFERS)
        self.images = Table("IMAGES", IMAGES)
        self.unbounded = Table("UNBOUNDED", UNBOUNDED)
        self.version = int(headers.run('printf("%d", CUDA_VERSION);'))

    def _measure(self, headers: Headers) -> dict[str, int]:
        kinds = {kind for parameters in self.prototypes.values() for kind, _ in parameters}
        kinds |= {inner for kind in kinds if (inner := pointee_of(kind))}
        lines = [f'printf("%s=%zu\\n", "{kind}", sizeof({kind}));' for kind in sorted(kinds)]
        return {
            k: int(v)
            for k, v in (line.rsplit("=", 1) for line in headers.run("\n".join(lines)).split("\n") if line)
        }

    def _layouts(self, headers: Headers) -> dict[str, Any]:
        lines = []
        for name, fields in LAYOUTS.items():
            lines.append(f'printf("%s . 0 %zu\\n", "{name}", sizeof({name}));')
            for field in fields.split():
                values = f"offsetof({name}, {field}), sizeof((({name}*)0)->{field})"
                lines.append(f'printf("%s %s %zu %zu\\n", "{name}", "{field}", {values});')
        layouts: dict[str, Any] = {}
        for line in headers.run("\n".join(lines)).splitlines():
            name, field, offset, size = line.split()
            if field == ".":
                layouts[name] = {"size": int(size), "fields": {}}
            else:
                layouts[name]["fields"][field] = [int(offset), int(size)]
        return layouts

    def parameter(self, base: str, kind: str, name: str, slot: int, names: list[str]) -> dict[str, Any]:
        inner = pointee_of(kind)
        row: dict[str, Any] = {"name": name, "type": kind, "direction": "value", "pointee": 0, "slot": slot}
        if self.sizes[kind] < 8:
            row["bytes"] = self.sizes[kind]
        if kind == "const char *":
            return row | {"direction": "in", "rule": "string"}
        if buffer := self.buffers.find(base, name):
            _, _, direction, count, unit = buffer
            if count not in names:
                return row
            unit = unit or self.sizes[str(inner)]
            return row | {"direction": direction, "rule": "buffer", "count": names.index(count), "unit": unit}
        if self.images.find(base, name):
            return row | {"direction": "in", "rule": "image"}
        if self.unbounded.find(base, name) or inner is None:
            return row
        direction = "in" if kind.startswith("const ") and "**" not in kind else "out"
        size = self.sizes[inner]
        if override := self.directions.find(base, name):
            direction, size = override[2], (*override, size)[3]
        return row | {"direction": direction, "pointee": size}

    def function(self, name: str) -> dict[str, Any]:
        base, parameters = base_name(name), self.prototypes[name]
        names = [parameter for _, parameter in parameters]
        registers, stack, rows = 0, 6, []
        for kind, parameter in parameters:
            # System V ABI 3.2.3: floats in vector registers, structures above 16 bytes on the stack
            if kind in ("float", "double"):
                slot = -1
            elif self.sizes[kind] > 16 or registers >= 6:
                slot, stack = stack, stack + (self.sizes[kind] + 7) // 8
            else:
                slot, registers = registers, registers + 1
            rows.append(self.parameter(base, kind, parameter, slot, names))
        result = {"base": base, "effect": effect_of(base), "replay": base in REPLAYED, "parameters": rows}
        if base in SPECIALS:
            result["special"] = SPECIALS[base]
        return result

    def generate(self) -> dict[str, Any]:
        functions = {name: self.function(name) for name in sorted(self.prototypes)}
        for table in (self.directions, self.buffers, self.images, self.unbounded):
            table.check()
        bases = {f["base"] for f in functions.values()}
        exceptions = [name for name in NOT_QUERIES if "*" not in name]
        tables = {"REPLAYED": REPLAYED, "SPECIALS": SPECIALS, "HINTS": HINTS, "NOT_QUERIES": exceptions}
        for title, wanted in tables.items():
            if missing := [n for n in wanted if n not in bases]:
                raise SystemExit(f"{title}: no such functions in the headers: {missing}")
        return {"cuda_version": self.version, "functions": functions, "layouts": self.layouts}


def write(table: dict[str, Any], path: Path) -> None:
    """One line a function, so that a new toolkit's difference can be read."""
    lines = [
        f"{json.dumps(n)}: {json.dumps(f, separators=(',', ':'))}" for n, f in table["functions"].items()
    ]
    rest = {key: value for key, value in table.items() if key != "functions"}
    text = json.dumps(rest, separators=(",", ":"))[:-1] + ',\n"functions": {\n' + ",\n".join(lines) + "\n}}\n"
    json.loads(text)
    path.write_text(text)


def main() -> None:
    parser = argparse.ArgumentParser(description="derive driver_api.json from CUDA's headers")
    parser.add_argument("--cuda", type=Path, default=Path("/usr/local/cuda"))
    parser.add_argument("--output", type=Path, default=Path("zluda/driver/driver_api.json"))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        table = Generator(Headers(options.cuda, Path(work))).generate()
    write(table, options.output)
    print(f"{options.output}: {len(table['functions'])} functions of CUDA {table['cuda_version']}")


if __name__ == "__main__":
    main()
