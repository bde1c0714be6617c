"""A perceptron under torch.compile: three steps of training, beside the same steps without it."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from torch_support import finish, values

torch.use_deterministic_algorithms(True, warn_only=True)


def trained(compiled: bool) -> list[torch.Tensor]:
    torch.manual_seed(0)
    layers = [nn.Linear(48, 64), nn.GELU(), nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 8)]
    model = nn.Sequential(*layers)
    model = model.cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    forward = torch.compile(model) if compiled else model
    x, labels = values(32, 48, seed=1), torch.arange(32, device="cuda") % 8
    losses = []
    for _ in range(3):
        loss = nn.functional.cross_entropy(forward(x), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.detach())
    return [torch.stack(losses), *(one.detach() for one in model.parameters())]


finish("torch_mlp", [(got, right, 2e-4) for got, right in zip(trained(True), trained(False), strict=True)])
