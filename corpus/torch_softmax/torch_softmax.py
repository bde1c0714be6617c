"""Softmax, log-softmax and cross entropy under torch.compile, forward and backward."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from torch_support import finish, values

torch.use_deterministic_algorithms(True, warn_only=True)


def softmax(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x * 0.5, -1).square().sum(0)


def log_softmax(x: torch.Tensor) -> torch.Tensor:
    return torch.log_softmax(x.float(), -1).to(x.dtype).mean(0)


def entropy(x: torch.Tensor) -> torch.Tensor:
    labels = torch.arange(x.shape[0], device=x.device) * 7 % x.shape[1]
    return nn.functional.cross_entropy(x, labels, label_smoothing=0.1)


results = []
for function, rows, width, dtype, tolerance in (
    (softmax, 32, 300, torch.float32, 1e-5),
    (log_softmax, 16, 129, torch.float16, 2e-2),
    (entropy, 24, 1030, torch.float32, 1e-5),
):
    found = []
    for call in (torch.compile(function, dynamic=False), function):
        x = values(rows, width, seed=width, dtype=dtype).requires_grad_()
        y = call(x)
        y.float().sum().backward()
        found.append([y.detach(), x.grad])
    results += [(got, right, tolerance) for got, right in zip(*found, strict=True)]
finish("torch_softmax", results)
