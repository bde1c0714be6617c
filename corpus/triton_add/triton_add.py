"""y = x + y over vectors whose length is no multiple of a block."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
import triton
import triton.language as tl

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from torch_support import finish, values


@triton.jit
def add(x, y, out, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    total = tl.load(x + at, mask=inside) + tl.load(y + at, mask=inside)
    tl.store(out + at, total, mask=inside)


def run(count: int, block: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor, float]:
    x, y = values(count, seed=1, dtype=dtype), values(count, seed=2, dtype=dtype)
    out = torch.empty_like(x)
    add[(triton.cdiv(count, block),)](x, y, out, count, BLOCK=block)
    return out, x + y, 0.0


finish(
    "triton_add",
    [run(4099, 1024, torch.float32), run(1000, 256, torch.float16), run(777, 256, torch.bfloat16)],
)
