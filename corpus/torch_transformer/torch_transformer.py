"""A transformer block under torch.compile, forward and backward, beside the same block without it."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from torch_support import finish, values

torch.use_deterministic_algorithms(True, warn_only=True)


WIDTH, HEADS, LENGTH, BATCH = 64, 4, 48, 2


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.before, self.between = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.wide, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = self.qkv(self.before(x)).chunk(3, -1)
        q, k, v = (part.reshape(BATCH, LENGTH, HEADS, WIDTH // HEADS).transpose(1, 2) for part in parts)
        scores = (q @ k.transpose(2, 3)) * (WIDTH // HEADS) ** -0.5
        hidden = torch.ones(LENGTH, LENGTH, device=x.device, dtype=torch.bool).triu(1)
        attended = scores.masked_fill(hidden, -torch.inf).softmax(-1) @ v
        x = x + self.out(attended.transpose(1, 2).reshape(BATCH, LENGTH, WIDTH))
        return x + self.narrow(nn.functional.gelu(self.wide(self.between(x))))


def run(compiled: bool) -> list[torch.Tensor]:
    torch.manual_seed(0)
    block = Block().cuda()
    x = values(BATCH, LENGTH, WIDTH, seed=1).requires_grad_()
    y = (torch.compile(block) if compiled else block)(x)
    (y * values(BATCH, LENGTH, WIDTH, seed=2)).sum().backward()
    assert x.grad is not None
    return [y.detach(), x.grad, *(one.grad for one in block.parameters() if one.grad is not None)]


finish("torch_transformer", [(got, right, 5e-3) for got, right in zip(run(True), run(False), strict=True)])
