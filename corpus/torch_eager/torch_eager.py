"""A small network, eagerly: what PyTorch brings along runs as machine code."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from torch_support import finish, values

torch.use_deterministic_algorithms(True, warn_only=True)


torch.manual_seed(0)
model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(8 * 49, 10))
x = values(4, 3, 16, 16, seed=1)
right = model(x.cpu()).detach().cuda()
got = model.cuda()(x).detach()
finish(
    "torch_eager", [(got, right, 5e-3), (torch.sort(x.flatten())[0], x.flatten().cpu().sort()[0].cuda(), 0.0)]
)
