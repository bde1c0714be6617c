"""A transformer block of Triton kernels: `triton_block.py STEPS [LENGTH [WIDTH]]`. Layer norms, matrix
products with what follows them, and attention, in half precision; prints the milliseconds a step, after
warming up.
"""

from __future__ import annotations

import sys
import time

import torch
import triton
import triton.language as tl

HEAD = 64


@triton.jit
def layer_norm(x, weight, out, width: tl.constexpr):
    at = tl.program_id(0) * width + tl.arange(0, width)
    row = tl.load(x + at).to(tl.float32)
    row -= tl.sum(row) / width
    row *= tl.rsqrt(tl.sum(row * row) / width + 1e-5)
    tl.store(out + at, (row * tl.load(weight + tl.arange(0, width))).to(tl.float16))


@triton.jit
def product(
    a,
    b,
    added,
    out,
    n,
    k,
    gelu: tl.constexpr,
    adds: tl.constexpr,
    M: tl.constexpr,
    N: tl.constexpr,
    K: tl.constexpr,
):
    rows = tl.program_id(0) * M + tl.arange(0, M)
    columns = tl.program_id(1) * N + tl.arange(0, N)
    inner = tl.arange(0, K)
    total = tl.zeros((M, N), tl.float32)
    for start in range(0, k, K):
        left = tl.load(a + rows[:, None] * k + start + inner[None, :])
        right = tl.load(b + (start + inner[:, None]) * n + columns[None, :])
        total = tl.dot(left, right, total)
    if gelu:
        total = total / (1 + tl.exp(-1.702 * total))
    place = rows[:, None] * n + columns[None, :]
    if adds:
        total += tl.load(added + place)
    tl.store(out + place, total.to(tl.float16))


@triton.jit
def attention(qkv, out, length, width: tl.constexpr, D: tl.constexpr, B: tl.constexpr):
    rows = tl.program_id(0) * B + tl.arange(0, B)
    inner = tl.program_id(1) * D + tl.arange(0, D)
    q = tl.load(qkv + rows[:, None] * 3 * width + inner[None, :])
    best = tl.full((B,), -1e30, tl.float32)
    weight = tl.zeros((B,), tl.float32)
    total = tl.zeros((B, D), tl.float32)
    for start in range(0, (tl.program_id(0) + 1) * B, B):
        others = start + tl.arange(0, B)
        k = tl.load(qkv + others[:, None] * 3 * width + width + inner[None, :])
        scores = tl.dot(q, tl.trans(k)) * (D**-0.5)
        scores = tl.where(rows[:, None] >= others[None, :], scores, -1e30)
        highest = tl.maximum(best, tl.max(scores, 1))
        shares = tl.exp(scores - highest[:, None])
        shrink = tl.exp(best - highest)
        v = tl.load(qkv + others[:, None] * 3 * width + 2 * width + inner[None, :])
        total = tl.dot(shares.to(tl.float16), v, total * shrink[:, None])
        weight = weight * shrink + tl.sum(shares, 1)
        best = highest
    tl.store(out + rows[:, None] * width + inner[None, :], (total / weight[:, None]).to(tl.float16))


class Block:
    """Weights and buffers of one block."""

    def __init__(self, length: int, width: int) -> None:
        half = {"device": "cuda", "dtype": torch.float16}
        self.length, self.width = length, width
        self.norms = [torch.ones(width, **half) for _ in range(2)]
        shapes = ((width, 3 * width), (width, width), (width, 4 * width), (4 * width, width))
        self.qkv, self.out, self.wide, self.narrow = (torch.randn(s, **half) * width**-0.5 for s in shapes)
        self.x = torch.randn(length, width, **half)
        self.normed, self.attended = torch.empty_like(self.x), torch.empty_like(self.x)
        self.heads = torch.empty(length, 3 * width, **half)
        self.inner = torch.empty(length, 4 * width, **half)

    def _product(
        self, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor, *, gelu: bool, adds: bool
    ) -> None:
        (k, n), sizes = b.shape, {"M": 128, "N": 128, "K": 64}
        grid = (self.length // sizes["M"], n // sizes["N"])
        product[grid](a, b, out, out, n, k, gelu=gelu, adds=adds, num_warps=8, **sizes)

    def step(self) -> None:
        rows, heads = (self.length,), (self.length // 64, self.width // HEAD)
        layer_norm[rows](self.x, self.norms[0], self.normed, self.width)
        self._product(self.normed, self.qkv, self.heads, gelu=False, adds=False)
        attention[heads](self.heads, self.attended, self.length, self.width, D=HEAD, B=64)
        self._product(self.attended, self.out, self.x, gelu=False, adds=True)
        layer_norm[rows](self.x, self.norms[1], self.normed, self.width)
        self._product(self.normed, self.wide, self.inner, gelu=True, adds=False)
        self._product(self.inner, self.narrow, self.x, gelu=False, adds=True)


def main() -> None:
    steps, length, width = map(int, [*sys.argv[1:], *("20", "256", "512")[len(sys.argv) - 1 :]])
    torch.manual_seed(0)
    block = Block(length, width)
    for _ in range(2):
        block.step()
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(steps):
        block.step()
    torch.cuda.synchronize()
    seconds = time.perf_counter() - start
    mean = block.x.float().abs().mean().item()
    print(f"mean {mean:.3f}, {steps} steps: {1e3 * seconds / steps:.3f} ms a step")


if __name__ == "__main__":
    main()
