"""An eager PyTorch run, whole: `torch_run.py STEPS`. A perceptron that learns; prints the milliseconds a step
of all steps, the first included.
"""

from __future__ import annotations

import sys
import time

import torch
from torch import nn


def main() -> None:
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    torch.manual_seed(0)
    layers = [nn.Linear(1024, 4096), nn.GELU(), nn.Linear(4096, 4096), nn.GELU(), nn.Linear(4096, 10)]
    model = nn.Sequential(*layers).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    inputs = torch.randn(4096, 1024, device="cuda")
    labels = torch.randint(10, (4096,), device="cuda")
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(steps):
        loss = nn.functional.cross_entropy(model(inputs), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    torch.cuda.synchronize()
    seconds = time.perf_counter() - start
    assert loss.isfinite()
    print(f"{steps} steps: {1e3 * seconds / steps:.3f} ms a step")


if __name__ == "__main__":
    main()
