"""The program that ``bench.record_sample`` records: training steps of a small transformer in PyTorch.

Prints the last loss on standard output, and the seconds that the steps took on standard error.
"""

from __future__ import annotations

import sys
import time

import torch  # type: ignore[import-not-found]

WIDTH, LAYERS, HEADS, TOKENS, BATCH, VOCABULARY = 512, 6, 8, 128, 16, 1024


def main(steps: int) -> None:
    torch.manual_seed(0)
    block = torch.nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, dropout=0.0, batch_first=True)
    body = torch.nn.TransformerEncoder(block, LAYERS)
    model = torch.nn.Sequential(
        torch.nn.Embedding(VOCABULARY, WIDTH), body, torch.nn.Linear(WIDTH, VOCABULARY)
    ).cuda()
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=True)
    data = torch.randint(0, VOCABULARY, (BATCH, TOKENS + 1))
    torch.cuda.synchronize()
    start = time.perf_counter()
    for step in range(steps):
        tokens = data.roll(step, 0).cuda(non_blocking=True)
        loss = torch.nn.functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        optimiser.step()
    print(f"{loss.item():.4f}")
    print(f"{time.perf_counter() - start:.3f} s for {steps} steps", file=sys.stderr)


if __name__ == "__main__":
    main(int(sys.argv[1]))
