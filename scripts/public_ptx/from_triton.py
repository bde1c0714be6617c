"""PTX of Triton kernels for sm_80 and sm_90a, without a GPU: python from_triton.py DIRECTORY."""

import sys
from pathlib import Path

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


@triton.jit
def add(x, y, out, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(out + i, tl.load(x + i, mask=i < n) + tl.load(y + i, mask=i < n), mask=i < n)


@triton.jit
def softmax(x, out, columns, B: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, B)
    v = tl.load(x + row * columns + i, mask=i < columns, other=-float("inf")).to(tl.float32)
    e = tl.exp(v - tl.max(v, 0))
    tl.store(out + row * columns + i, e / tl.sum(e, 0), mask=i < columns)


@triton.jit
def layer_norm(x, weight, bias, out, columns, eps, B: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, B)
    v = tl.load(x + row * columns + i, mask=i < columns, other=0.0).to(tl.float32)
    mean = tl.sum(v, 0) / columns
    d = tl.where(i < columns, v - mean, 0)
    scale = tl.rsqrt(tl.sum(d * d, 0) / columns + eps)
    w, b = tl.load(weight + i, mask=i < columns), tl.load(bias + i, mask=i < columns)
    tl.store(out + row * columns + i, d * scale * w + b, mask=i < columns)


@triton.jit
def dropout(x, out, n, p, seed, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    kept = tl.rand(seed, i) > p
    tl.store(out + i, tl.where(kept, tl.load(x + i, mask=i < n) / (1 - p), 0.0), mask=i < n)


@triton.jit
def scan(x, out, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(out + i, tl.cumsum(tl.load(x + i), 0))


@triton.jit
def sort(x, out, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(out + i, tl.sort(tl.load(x + i)))


@triton.jit
def histogram(x, out, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.atomic_add(out + tl.arange(0, 64), tl.histogram(tl.load(x + i), 64))


@triton.jit
def argmax(x, out, columns, B: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, B)
    v = tl.load(x + row * columns + i, mask=i < columns, other=-float("inf"))
    tl.atomic_max(out + row, tl.argmax(v, 0))


@triton.jit
def gelu(x, out, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    v = tl.load(x + i, mask=i < n).to(tl.float32)
    tl.store(out + i, 0.5 * v * (1 + tl.erf(v * 0.70710678)), mask=i < n)


@triton.jit
def trigonometry(x, out, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    v = tl.load(x + i, mask=i < n).to(tl.float32)
    r = tl.sin(v) + tl.cos(v) * tl.log(tl.abs(v) + 1) + tl.sqrt_rn(tl.abs(v)) + tl.exp2(tl.floor(v))
    tl.store(out + i, r, mask=i < n)


@triton.jit
def lock(state, count, out):
    while tl.atomic_cas(state, 0, 1) == 1:
        pass
    tl.store(out, tl.load(out) + 1.0)
    tl.atomic_xchg(state, 0)


@triton.jit
def matmul(a, b, c, M, N, K, a_row, b_row, c_row, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    along = tl.arange(0, BK)
    a_at = a + rows[:, None] * a_row + along[None, :]
    b_at = b + along[:, None] * b_row + columns[None, :]
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        total = tl.dot(tl.load(a_at, mask=along[None, :] < K - k, other=0.0), tl.load(b_at), total)
        a_at += BK
        b_at += BK * b_row
    at = c + rows[:, None] * c_row + columns[None, :]
    tl.store(at, total.to(c.dtype.element_ty), mask=(rows[:, None] < M) & (columns[None, :] < N))


@triton.jit
def integer_matmul(a, b, c, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows, columns, along = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK)
    total = tl.zeros((BM, BN), dtype=tl.int32)
    for k in range(0, K, BK):
        x = tl.load(a + rows[:, None] * K + k + along[None, :])
        y = tl.load(b + columns[None, :] * K + k + along[:, None])
        total = tl.dot(x, y, total)
    tl.store(c + rows[:, None] * BN + columns[None, :], total)


@triton.jit
def attention(q, k, v, out, scale, length, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    rows, width, columns = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, D), tl.arange(0, BN)
    query = tl.load(q + rows[:, None] * D + width[None, :])
    largest = tl.full((BM,), -float("inf"), tl.float32)
    weight = tl.zeros((BM,), tl.float32)
    total = tl.zeros((BM, D), tl.float32)
    for start in range(0, length, BN):
        key = tl.load(k + (start + columns)[None, :] * D + width[:, None])
        s = tl.dot(query, key) * scale
        s = tl.where((start + columns)[None, :] <= rows[:, None], s, -float("inf"))
        new = tl.maximum(largest, tl.max(s, 1))
        p = tl.exp2(s - new[:, None])
        alpha = tl.exp2(largest - new)
        weight = weight * alpha + tl.sum(p, 1)
        value = tl.load(v + (start + columns)[:, None] * D + width[None, :])
        total = tl.dot(p.to(value.dtype), value, total * alpha[:, None])
        largest = new
    at = out + rows[:, None] * D + width[None, :]
    tl.store(at, (total / weight[:, None]).to(out.dtype.element_ty))


ONE, BLOCK = {"B": 512}, {"BM": 64, "BN": 64, "BK": 32}
LARGE, HEAD = {"BM": 128, "BN": 128, "BK": 64}, {"D": 64, "BM": 64, "BN": 64}


def cases(capability):
    """(name, function, types of the arguments, constants, options)."""
    for t in ("fp32", "fp16", "bf16"):
        yield f"add_{t}", add, [f"*{t}"] * 3 + ["i32"], ONE, {}
        yield f"softmax_{t}", softmax, [f"*{t}"] * 2 + ["i32"], ONE, {}
        yield f"layer_norm_{t}", layer_norm, [f"*{t}"] * 4 + ["i32", "fp32"], ONE, {}
        yield f"gelu_{t}", gelu, [f"*{t}"] * 2 + ["i32"], ONE, {}
        yield f"trigonometry_{t}", trigonometry, [f"*{t}"] * 2 + ["i32"], ONE, {}
    yield "dropout", dropout, ["*fp32", "*fp32", "i32", "fp32", "i32"], ONE, {}
    for t in ("fp32", "i32"):
        yield f"scan_{t}", scan, [f"*{t}"] * 2, ONE, {}
        yield f"sort_{t}", sort, [f"*{t}"] * 2, ONE, {}
    yield "histogram", histogram, ["*i32", "*i32"], ONE, {}
    yield "argmax", argmax, ["*fp32", "*i32", "i32"], ONE, {}
    yield "lock", lock, ["*i32", "*i32", "*fp32"], {}, {}
    types = ["fp16", "bf16", "fp32"] + (["fp8e4nv", "fp8e5"] if capability >= 90 else [])
    for t in types:
        for blocks, stages in ((BLOCK, 2), (LARGE, 3)):
            if blocks is LARGE and t == "fp32":
                continue
            result = "*fp32" if t.startswith("fp8") else f"*{t}"
            name, options = f"matmul_{t}_{blocks['BM']}", {"num_warps": 4, "num_stages": stages}
            yield name, matmul, [f"*{t}", f"*{t}", result] + ["i32"] * 6, blocks, options
    yield "matmul_i8", integer_matmul, ["*i8", "*i8", "*i32", "i32"], BLOCK, {"num_stages": 2}
    for t in ("fp16", "bf16"):
        options = {"num_warps": 4, "num_stages": 2}
        yield f"attention_{t}", attention, [f"*{t}"] * 4 + ["fp32", "i32"], HEAD, options


def main(out: Path) -> None:
    """Write one file a kernel and capability."""
    for capability in (80, 90):
        for name, function, types, constants, options in cases(capability):
            names = function.arg_names
            signature = dict(zip(names, types, strict=False)) | dict.fromkeys(constants, "constexpr")
            attrs = {
                (i,): [["tt.divisibility", 16]] for i, t in enumerate(types) if t[0] == "*" or t == "i32"
            }
            source = ASTSource(function, signature, constexprs=constants, attrs=attrs)
            made = triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)
            (out / f"{name}_sm{capability}.ptx").write_text(made.asm["ptx"])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
