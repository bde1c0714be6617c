"""PTX of CuPy's kernels by NVRTC, without a GPU: python from_cupy.py DIRECTORY.

Every loop of every ufunc, as CuPy writes its elementwise kernels, and the source modules of a few packages.
"""

import gc
import hashlib
import importlib
import sys
from pathlib import Path

import cupy
from cupy.cuda import compiler

PACKAGES = [
    "cupyx.scipy.ndimage._filters", "cupyx.scipy.ndimage._pba_2d", "cupyx.scipy.ndimage._pba_3d",
    "cupyx.scipy.spatial._kdtree_utils", "cupyx.scipy.spatial.delaunay_2d._kernels",
    "cupyx.scipy.spatial.delaunay_2d._schewchuk", "cupyx.scipy.sparse._compressed", "cupy.random._kernels",
    "cupyx.scipy.special",
]  # fmt: skip
INCLUDE = Path(cupy.__file__).parent / "_core" / "include"
NAMES = {
    "?": "bool", "b": "signed char", "B": "unsigned char", "h": "short", "H": "unsigned short", "i": "int",
    "I": "unsigned int", "l": "long long", "L": "unsigned long long", "q": "long long",
    "Q": "unsigned long long", "e": "float16", "f": "float", "d": "double", "F": "complex<float>",
    "D": "complex<double>",
}  # fmt: skip

TYPES = set("?hilLefdF")  # a loop each is enough: the others differ in width or sign alone


def options():
    bundled = [f"-I{INCLUDE}/cupy/_cccl/{part}" for part in ("libcudacxx", "thrust", "cub")]
    site = next(p for p in sys.path if (Path(p) / "nvidia/cuda_runtime/include").exists())
    include = [f"-I{INCLUDE}", *bundled, f"-I{site}/nvidia/cuda_runtime/include"]
    return ("-std=c++17", "-arch=compute_80", "-DCUPY_USE_JITIFY=0", *include)


def compiled(source, names=(), extra=()):
    program = compiler._NVRTCProgram(source, "kernel.cu", name_expressions=list(names) or None)
    text, _ = program.compile(options() + tuple(extra))
    return text if isinstance(text, bytes) else text.encode()


def loop(ufunc, op):
    """The elementwise kernel of one of a ufunc's loops, contiguous operands."""
    inputs = [(f"in{i}", NAMES[t.char]) for i, t in enumerate(op.in_types)]
    outputs = [(f"out{i}", NAMES[t.char]) for i, t in enumerate(op.out_types)]
    arrays = ", ".join(f"CArray<{t}, 1, 1, 1> _raw_{n}" for n, t in inputs + outputs)
    types = "".join(f"typedef {t} {n}_type;\n" for n, t in inputs + outputs)
    reads = "".join(f"const {t} {n} = _raw_{n}[_ind.get()];\n" for n, t in inputs)
    writes = "".join(f"{t} &{n} = _raw_{n}[_ind.get()];\n" for n, t in outputs)
    routine = op.routine if isinstance(op.routine, str) else ""
    return f"""#include <cupy/complex.cuh>
#include <cupy/carray.cuh>
#include <cupy/atomics.cuh>
#include <cupy/math_constants.h>
{types}{ufunc._preamble}
extern "C" __global__ void k({arrays}, CIndexer<1, 1> _ind) {{
  CUPY_FOR(i, _ind.size()) {{ _ind.set(i); {reads}{writes}{routine}; }}
}}"""


def main(out: Path) -> None:
    """Write one file a loop or module; what NVRTC does not take is counted on standard error."""
    for name in PACKAGES:
        importlib.import_module(name)
    failed = 0
    sources = []
    for item in gc.get_objects():
        if isinstance(item, cupy.ufunc):
            known = [
                op for op in item._ops.ops if all(t.char in NAMES for t in (*op.in_types, *op.out_types))
            ]
            sources += [(item.name, loop(item, op), (), ()) for op in known]
        elif isinstance(item, cupy.RawModule | cupy.RawKernel) and item.code:
            names = getattr(item, "name_expressions", None) or ()
            sources.append(("module", item.code, names, item.options))
    for name, source, names, extra in sources:
        digest = hashlib.blake2b((source + repr(names)).encode(), digest_size=6).hexdigest()
        try:
            (out / f"{name}_{digest}.ptx").write_bytes(compiled(source, names, extra))
        except Exception as error:
            failed += 1
            print(f"cupy: {name}: {error}"[:300], file=sys.stderr)
    print(f"cupy: {failed} of {len(sources)} sources left out", file=sys.stderr)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
