"""Layer norms under torch.compile, forward and backward, in three types."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from torch_support import finish, values

torch.use_deterministic_algorithms(True, warn_only=True)


def run(compiled: bool, rows: int, width: int, dtype: torch.dtype) -> list[torch.Tensor]:
    x = values(rows, width, seed=1, dtype=dtype).requires_grad_()
    weight, bias = (values(width, seed=seed, dtype=dtype).requires_grad_() for seed in (2, 3))

    def norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return nn.functional.layer_norm(torch.relu(x) + x, (width,), weight, bias)

    y = (torch.compile(norm, dynamic=False) if compiled else norm)(x, weight, bias)
    y.backward(values(rows, width, seed=4, dtype=dtype))
    return [y.detach(), *(one.grad for one in (x, weight, bias) if one.grad is not None)]


results = []
for rows, width, dtype, tolerance in (
    (24, 200, torch.float32, 1e-4),
    (16, 64, torch.float16, 5e-2),
    (4, 1500, torch.bfloat16, 0.2),
):
    pairs = zip(run(True, rows, width, dtype), run(False, rows, width, dtype), strict=True)
    results += [(got, right, tolerance) for got, right in pairs]
finish("torch_layer_norm", results)
