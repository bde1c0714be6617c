"""PTX of Warp, without a GPU: python from_warp.py DIRECTORY. Its own modules of kernels, and a few more."""

import importlib
import sys
from pathlib import Path

import warp as wp

MODULES = [
    "warp.sparse",
    "warp.utils",
    "warp.fem.utils",
    "warp.optim.linear",
    *(f"warp.examples.core.example_{n}" for n in ("dem", "fluid", "nvdb", "raymarch", "sph", "wave")),
    *(f"warp.examples.tile.example_tile_{n}" for n in ("matmul", "nbody", "mlp")),
]


@wp.kernel
def arithmetic(x: wp.array(dtype=float), out: wp.array(dtype=float)):
    i = wp.tid()
    v = x[i]
    out[i] = (
        wp.sin(v)
        + wp.exp(v) * wp.sqrt(wp.abs(v))
        + wp.pow(v, 2.5)
        + wp.atan2(v, 2.0)
        + wp.floor(v)
        + wp.erf(v)
    )


@wp.kernel
def doubles(x: wp.array(dtype=wp.float64), out: wp.array(dtype=wp.float64)):
    i = wp.tid()
    out[i] = wp.log(wp.abs(x[i]) + wp.float64(1.0)) / x[i] + wp.tanh(x[i])


@wp.kernel
def halves(x: wp.array(dtype=wp.float16), out: wp.array(dtype=wp.float16)):
    i = wp.tid()
    out[i] = x[i] * x[i] + wp.float16(1.5)


@wp.kernel
def matrices(a: wp.array(dtype=wp.mat33), v: wp.array(dtype=wp.vec3), out: wp.array(dtype=wp.vec3)):
    i = wp.tid()
    q = wp.quat_from_axis_angle(wp.normalize(v[i]), 0.3)
    u, s, w = wp.svd3(a[i])
    out[i] = wp.quat_rotate(q, wp.inverse(a[i]) * v[i]) + u * s + wp.cross(v[i], w * s)


@wp.kernel
def counting(x: wp.array(dtype=int), out: wp.array(dtype=int), sums: wp.array(dtype=float)):
    i = wp.tid()
    wp.atomic_add(out, x[i] % 16, 1)
    wp.atomic_max(out, x[i] % 7, i)
    wp.atomic_add(sums, 0, wp.randf(wp.rand_init(42, i)) + wp.noise(wp.rand_init(7), float(i)))


@wp.kernel
def tiles(a: wp.array2d(dtype=float), b: wp.array2d(dtype=float), c: wp.array2d(dtype=float)):
    x = wp.tile_load(a, shape=(16, 16))
    y = wp.tile_load(b, shape=(16, 16))
    wp.tile_store(c, wp.tile_map(wp.add, x, y))
    wp.tile_atomic_add(c, x)


def main(out: Path) -> None:
    """Compile every module for sm_80; one that does not import or compile is named on standard error."""
    wp.init()
    for name in [*MODULES, __name__]:
        try:
            module = sys.modules[name] if name == __name__ else importlib.import_module(name)
            wp.compile_aot_module(module, arch=80, module_dir=str(out), use_ptx=True)
        except Exception as error:
            print(f"warp: {name} left out: {error}"[:200], file=sys.stderr)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
