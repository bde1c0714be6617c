"""Flex attention under torch.compile: a causal mask and a bias by distance, beside plain attention."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from torch_support import finish, values

torch.use_deterministic_algorithms(True, warn_only=True)

HEADS, LENGTH, WIDTH = 2, 128, 32


def biased(
    score: torch.Tensor, batch: object, head: torch.Tensor, q: torch.Tensor, k: torch.Tensor
) -> torch.Tensor:
    return score - (q - k).abs() * (0.05 * (head + 1))


def causal(batch: object, head: object, q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    return q >= k


query, key, value = (values(1, HEADS, LENGTH, WIDTH, seed=seed, dtype=torch.float16) for seed in (1, 2, 3))
mask = create_block_mask(causal, None, None, LENGTH, LENGTH, device="cuda")
compiled = torch.compile(flex_attention, dynamic=False)
got = compiled(query, key, value, score_mod=biased, block_mask=mask)

at = torch.arange(LENGTH, device="cuda")
slope = 0.05 * (torch.arange(HEADS, device="cuda") + 1)
scores = query.float() @ key.float().transpose(2, 3) * WIDTH**-0.5
scores = scores - (at[:, None] - at).abs() * slope[:, None, None]
scores = scores.masked_fill(at[:, None] < at, -torch.inf)
finish("torch_attention", [(got, scores.softmax(-1) @ value.float(), 5e-3)])
