"""PTX of numba-cuda kernels, without a GPU: python from_numba.py DIRECTORY."""

import math
import sys
from pathlib import Path

import numba
from numba import cuda

F, D, N, L = numba.float32, numba.float64, numba.int32, numba.int64


def saxpy(a, x, y):
    i = cuda.grid(1)
    if i < x.size:
        y[i] = a * x[i] + y[i]


def matmul(a, b, c):
    left, right = cuda.shared.array((16, 16), F), cuda.shared.array((16, 16), F)
    x, y = cuda.grid(2)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    total = F(0)
    for k in range(a.shape[1] // 16):
        left[ty, tx] = a[y, tx + 16 * k]
        right[ty, tx] = b[ty + 16 * k, x]
        cuda.syncthreads()
        for j in range(16):
            total += left[ty, j] * right[j, tx]
        cuda.syncthreads()
    c[y, x] = total


def reduce(x, out):
    v = x[cuda.grid(1)]
    for d in (16, 8, 4, 2, 1):
        v += cuda.shfl_down_sync(0xFFFFFFFF, v, d)
    if cuda.laneid == 0:
        cuda.atomic.add(out, 0, v)


def votes(x, out):
    i = cuda.grid(1)
    hot = x[i] > 0
    out[i] = (
        cuda.ballot_sync(0xFFFFFFFF, hot)
        + cuda.popc(N(i))
        + cuda.clz(N(i))
        + cuda.ffs(N(i))
        + cuda.brev(N(i))
    )
    if cuda.all_sync(0xFFFFFFFF, hot) or cuda.any_sync(0xFFFFFFFF, hot):
        out[i] += cuda.match_any_sync(0xFFFFFFFF, N(i % 3))


def functions(x, y):
    i = cuda.grid(1)
    if i < x.size:
        v = x[i]
        y[i] = (
            math.sin(v)
            + math.cos(v) * math.exp(v)
            - math.log(abs(v) + 1)
            + math.pow(v, 3)
            + math.tanh(v)
            + math.sqrt(abs(v))
            + math.atan2(v, v + 1)
            + math.erf(v)
            + math.lgamma(abs(v) + 1)
            + math.fmod(v, 2)
        )


def atomics(x, out):
    i = cuda.grid(1)
    cuda.atomic.max(out, i % 7, x[i])
    cuda.atomic.min(out, i % 5, x[i])
    cuda.atomic.exch(out, i % 3, x[i])
    cuda.atomic.cas(out, i % 11, x[i], x[i])


def integers(x, out):
    i = cuda.grid(1)
    if i < x.size:
        out[i] = (x[i] // 7) % 13 + (x[i] << 3) ^ (x[i] >> 1)


def local(x, out):
    room = cuda.local.array(32, F)
    i = cuda.grid(1)
    for k in range(32):
        room[k] = x[(i + k) % x.size]
    out[i] = room[int(x[i]) % 32]


def errors(x, out):
    i = cuda.grid(1)
    if x[i] == 0:
        raise ValueError
    print(i, x[i])
    out[i] = 1 / x[i]


KERNELS = [
    (saxpy, (F, F[:], F[:])), (saxpy, (D, D[:], D[:])), (matmul, (F[:, :], F[:, :], F[:, :])),
    (reduce, (F[:], F[:])), (reduce, (D[:], D[:])), (votes, (N[:], N[:])), (functions, (F[:], F[:])),
    (functions, (D[:], D[:])), (atomics, (N[:], N[:])), (atomics, (L[:], L[:])), (integers, (N[:], N[:])),
    (integers, (L[:], L[:])), (local, (F[:], F[:])),
    (errors, (F[:], F[:])),
]  # fmt: skip


def main(out: Path) -> None:
    """Write one file a kernel, its types and options."""
    for number, (function, types) in enumerate(KERNELS):
        for fast in (False, True):
            ptx, _ = cuda.compile_ptx(function, numba.types.void(*types), cc=(8, 0), fastmath=fast)
            (out / f"{function.__name__}_{number}{'_fast' if fast else ''}.ptx").write_text(ptx)
        ptx, _ = cuda.compile_ptx(function, numba.types.void(*types), cc=(8, 0), debug=True, opt=False)
        (out / f"{function.__name__}_{number}_debug.ptx").write_text(ptx)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
