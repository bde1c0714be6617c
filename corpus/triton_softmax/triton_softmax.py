"""Softmax of the rows of a matrix: in one piece, and for wide rows in two passes."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
import triton
import triton.language as tl

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from torch_support import finish, values


@triton.jit
def softmax_row(x, out, width, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    row = tl.program_id(0) * width
    value = tl.load(x + row + at, mask=at < width, other=-float("inf"))
    power = tl.exp(value - tl.max(value, axis=0))
    tl.store(out + row + at, power / tl.sum(power, axis=0), mask=at < width)


@triton.jit
def softmax_wide(x, out, width, BLOCK: tl.constexpr):
    row = tl.program_id(0) * width
    largest = tl.full((BLOCK,), -float("inf"), tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, width, BLOCK):
        at = start + tl.arange(0, BLOCK)
        value = tl.load(x + row + at, mask=at < width, other=-float("inf"))
        higher = tl.maximum(largest, value)
        total = total * tl.exp(largest - higher) + tl.exp(value - higher)
        largest = higher
    top = tl.max(largest, axis=0)
    whole = tl.sum(total * tl.exp(largest - top), axis=0)
    for start in range(0, width, BLOCK):
        at = start + tl.arange(0, BLOCK)
        value = tl.load(x + row + at, mask=at < width, other=0.0)
        tl.store(out + row + at, tl.exp(value - top) / whole, mask=at < width)


def run(
    kernel: triton.JITFunction, rows: int, width: int, block: int
) -> tuple[torch.Tensor, torch.Tensor, float]:
    x = values(rows, width, seed=width)
    out = torch.empty_like(x)
    kernel[(rows,)](x, out, width, BLOCK=block)
    return out, torch.softmax(x, 1), 1e-6


finish("triton_softmax", [run(softmax_row, 24, 217, 256), run(softmax_wide, 6, 1000, 128)])
