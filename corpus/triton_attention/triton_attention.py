"""Attention in one kernel: scores, their softmax and the weighted sum, block by block."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
import triton
import triton.language as tl

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from torch_support import finish, values


@triton.jit
def attention(
    q, k, v, out, length, scale, causal: tl.constexpr, D: tl.constexpr, M: tl.constexpr, N: tl.constexpr
):
    head = tl.program_id(1) * length * D
    rows = tl.program_id(0) * M + tl.arange(0, M)
    depth = tl.arange(0, D)
    query = tl.load(q + head + rows[:, None] * D + depth[None, :])
    largest = tl.full((M,), -float("inf"), tl.float32)
    total = tl.zeros((M,), tl.float32)
    weighted = tl.zeros((M, D), tl.float32)
    for start in range(0, length, N):
        columns = start + tl.arange(0, N)
        key = tl.load(k + head + columns[None, :] * D + depth[:, None])
        scores = tl.dot(query, key) * scale
        if causal:
            scores = tl.where(rows[:, None] >= columns[None, :], scores, -1.0e6)
        higher = tl.maximum(largest, tl.max(scores, 1))
        weights = tl.exp2(scores - higher[:, None])
        shrink = tl.exp2(largest - higher)
        total = total * shrink + tl.sum(weights, 1)
        value = tl.load(v + head + columns[:, None] * D + depth[None, :])
        weighted = tl.dot(weights.to(value.dtype), value, weighted * shrink[:, None])
        largest = higher
    tl.store(
        out + head + rows[:, None] * D + depth[None, :], (weighted / total[:, None]).to(out.dtype.element_ty)
    )


def run(
    length: int, tile: tuple[int, int], causal: bool, warps: int
) -> tuple[torch.Tensor, torch.Tensor, float]:
    heads, width = 2, 32
    q, k, v = (values(heads, length, width, seed=seed, dtype=torch.float16) for seed in (7, 8, 9))
    out = torch.empty_like(q)
    scale = width**-0.5
    attention[(length // tile[0], heads)](
        q, k, v, out, length, scale * 1.4426950408889634, causal, width, *tile, num_warps=warps
    )
    scores = q.float() @ k.float().transpose(1, 2) * scale
    if causal:
        scores = scores.masked_fill(torch.ones(length, length, device="cuda").triu(1).bool(), -float("inf"))
    return out, scores.softmax(2) @ v.float(), 4e-3


finish(
    "triton_attention", [run(64, (32, 32), False, 2), run(96, (32, 32), True, 2), run(128, (64, 64), True, 4)]
)
