"""What the programs of PyTorch and Triton share: repeatable data, and the file of results by which two runs
are compared.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch


def values(*shape: int, seed: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Normal values from the host's generator: the same on every GPU."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator).to(dtype).cuda()


def finish(name: str, results: list[tuple[torch.Tensor, torch.Tensor, float]]) -> None:
    """Hold each result to what PyTorch gives, within a tolerance; write them; exit with 1 if one is wrong."""
    torch.cuda.synchronize()
    wrong = 0
    data = b""
    for got, expected, tolerance in results:
        data += got.reshape(-1).view(torch.uint8).cpu().numpy().tobytes()
        error = (got.float() - expected.float()).abs().max().item()
        if not error <= tolerance:
            wrong += 1
            print(f"{name}: off by {error}, allowed {tolerance}", file=sys.stderr)
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_bytes(data)
    print(f"{name}: {'WRONG' if wrong else 'right'}")
    sys.exit(1 if wrong else 0)
