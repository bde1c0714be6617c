"""PyTorch training steps until it is killed, for ``scripts/record_kills.py``: ``killed_step.py ACCOUNT``.

Each step ends with an NVTX mark. ACCOUNT is a file of one word: how many marks had returned.
"""

from __future__ import annotations

import mmap
import struct
import sys
from pathlib import Path

import torch

WORD = struct.Struct("<Q")


def main() -> None:
    path = Path(sys.argv[1])
    path.write_bytes(WORD.pack(0))
    with open(path, "r+b") as file:
        account = mmap.mmap(file.fileno(), WORD.size)
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(256, 512), torch.nn.GELU(), torch.nn.LayerNorm(512), torch.nn.Linear(512, 16)
    ).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    inputs = torch.randn(64, 256, device="cuda")
    targets = torch.randint(16, (64,), device="cuda")
    done = 0
    while True:
        torch.nn.functional.cross_entropy(model(inputs), targets).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        torch.cuda.nvtx.mark(f"step {done}")
        done += 1
        WORD.pack_into(account, 0, done)


if __name__ == "__main__":
    main()
