"""Matrix products whose tiles are small enough for mma.sync: half precision, bf16 and tf32."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
import triton
import triton.language as tl

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from torch_support import finish, values


@triton.jit
def product(a, b, out, m, n, k, leaky: tl.constexpr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    rows = tl.program_id(0) * M + tl.arange(0, M)
    columns = tl.program_id(1) * N + tl.arange(0, N)
    inner = tl.arange(0, K)
    total = tl.zeros((M, N), tl.float32)
    for start in range(0, k, K):
        left = (rows[:, None] < m) & (start + inner[None, :] < k)
        right = (start + inner[:, None] < k) & (columns[None, :] < n)
        tile_a = tl.load(a + rows[:, None] * k + start + inner[None, :], mask=left, other=0.0)
        tile_b = tl.load(b + (start + inner[:, None]) * n + columns[None, :], mask=right, other=0.0)
        total = tl.dot(tile_a, tile_b, total)
    if leaky:
        total = tl.where(total >= 0, total, 0.01 * total)
    at = out + rows[:, None] * n + columns[None, :]
    tl.store(at, total.to(out.dtype.element_ty), mask=(rows[:, None] < m) & (columns[None, :] < n))


def run(
    shape: tuple[int, int, int], tile: tuple[int, int, int], dtype: torch.dtype, leaky: bool, warps: int
) -> tuple[torch.Tensor, torch.Tensor, float]:
    m, n, k = shape
    a, b = values(m, k, seed=m, dtype=dtype), values(k, n, seed=n, dtype=dtype)
    out = torch.empty(m, n, device="cuda", dtype=dtype)
    grid = (triton.cdiv(m, tile[0]), triton.cdiv(n, tile[1]))
    product[grid](a, b, out, m, n, k, leaky, *tile, num_warps=warps)
    exact = a.double() @ b.double()
    return out, torch.where(exact >= 0, exact, 0.01 * exact) if leaky else exact, 0.2


small = (32, 32, 32)
finish(
    "triton_matmul",
    [
        run((64, 96, 80), small, torch.float16, False, 2),
        run((50, 70, 64), small, torch.float16, True, 2),
        run((64, 64, 64), small, torch.float32, False, 2),
        run((32, 64, 96), (16, 32, 32), torch.bfloat16, False, 1),
    ],
)
