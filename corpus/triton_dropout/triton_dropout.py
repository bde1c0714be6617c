"""Dropout that keeps no mask: the random numbers of an element follow from a seed and its place."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
import triton
import triton.language as tl

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from torch_support import finish, values


@triton.jit
def dropout(x, out, count, share, seed, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    value = tl.load(x + at, mask=inside)
    keep = tl.rand(seed, at) > share
    tl.store(out + at, tl.where(keep, value / (1 - share), 0.0), mask=inside)


@triton.jit
def dropout_normal(out, seed, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.randn(seed, at))


count, share = 3001, 0.4
x = values(count, seed=5)
out, again, normal = torch.empty_like(x), torch.empty_like(x), torch.empty(1024, device="cuda")
dropout[(triton.cdiv(count, 512),)](x, out, count, share, 1234, BLOCK=512)
dropout[(triton.cdiv(count, 512),)](x, again, count, share, 77, BLOCK=512)
dropout_normal[(4,)](normal, 99, BLOCK=256)
kept = [torch.where(part != 0, x / (1 - share), torch.zeros_like(x)) for part in (out, again)]
finish(
    "triton_dropout",
    [
        (out, kept[0], 1e-6),
        (again, kept[1], 1e-6),
        (normal, torch.zeros_like(normal), 5.0),
        ((out != 0).float().mean(), torch.tensor(1 - share, device="cuda"), 0.05),
    ],
)
