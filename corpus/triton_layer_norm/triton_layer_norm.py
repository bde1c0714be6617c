"""Layer norm, forward and backward; what goes to weight and bias is summed in two steps, without atomics."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
import triton
import triton.language as tl

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from torch_support import finish, values


@triton.jit
def norm_forward(x, weight, bias, out, means, scales, width, epsilon, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    inside = at < width
    value = tl.load(x + row * width + at, mask=inside, other=0.0).to(tl.float32)
    mean = tl.sum(value, axis=0) / width
    centred = tl.where(inside, value - mean, 0.0)
    scale = 1 / tl.sqrt(tl.sum(centred * centred, axis=0) / width + epsilon)
    w = tl.load(weight + at, mask=inside)
    b = tl.load(bias + at, mask=inside)
    tl.store(out + row * width + at, (centred * scale * w + b).to(out.dtype.element_ty), mask=inside)
    tl.store(means + row, mean)
    tl.store(scales + row, scale)


@triton.jit
def norm_backward(
    gradient, x, weight, means, scales, out, part_w, part_b, width, ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    group = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    inside = at < width
    w = tl.load(weight + at, mask=inside, other=0.0)
    sum_w = tl.zeros((BLOCK,), tl.float32)
    sum_b = tl.zeros((BLOCK,), tl.float32)
    for one in range(ROWS):
        row = group * ROWS + one
        scale = tl.load(scales + row)
        hat = (
            tl.load(x + row * width + at, mask=inside, other=0.0).to(tl.float32) - tl.load(means + row)
        ) * scale
        hat = tl.where(inside, hat, 0.0)
        g = tl.load(gradient + row * width + at, mask=inside, other=0.0).to(tl.float32)
        wg = w * g
        along = tl.sum(hat * wg, axis=0) / width
        mean = tl.sum(wg, axis=0) / width
        tl.store(
            out + row * width + at, ((wg - hat * along - mean) * scale).to(out.dtype.element_ty), mask=inside
        )
        sum_w += g * hat
        sum_b += g
    tl.store(part_w + group * width + at, sum_w, mask=inside)
    tl.store(part_b + group * width + at, sum_b, mask=inside)


@triton.jit
def norm_sum(parts, out, groups, width, GROUPS: tl.constexpr, BLOCK: tl.constexpr):
    columns = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    lines = tl.arange(0, GROUPS)
    inside = (lines[:, None] < groups) & (columns[None, :] < width)
    part = tl.load(parts + lines[:, None] * width + columns[None, :], mask=inside, other=0.0)
    tl.store(out + columns, tl.sum(part, axis=0), mask=columns < width)


def run(dtype: torch.dtype, tolerance: float) -> list[tuple[torch.Tensor, torch.Tensor, float]]:
    rows, width, block, group = 24, 200, 256, 4
    x, gradient = values(rows, width, seed=3, dtype=dtype), values(rows, width, seed=4, dtype=dtype)
    weight, bias = values(width, seed=5), values(width, seed=6)
    out, back = torch.empty_like(x), torch.empty_like(x)
    means, scales = torch.empty(rows, device="cuda"), torch.empty(rows, device="cuda")
    norm_forward[(rows,)](x, weight, bias, out, means, scales, width, 1e-5, BLOCK=block)
    parts = [torch.empty(rows // group, width, device="cuda") for _ in range(2)]
    norm_backward[(rows // group,)](
        gradient, x, weight, means, scales, back, *parts, width, ROWS=group, BLOCK=block
    )
    sums = [torch.empty(width, device="cuda") for _ in range(2)]
    for part, total in zip(parts, sums, strict=True):
        norm_sum[(triton.cdiv(width, 64),)](part, total, rows // group, width, GROUPS=8, BLOCK=64)
    known = [one.float().requires_grad_() for one in (x, weight, bias)]
    right = torch.nn.functional.layer_norm(known[0], (width,), known[1], known[2], 1e-5)
    right.backward(gradient.float())
    return [
        (out, right.detach(), tolerance),
        (back, known[0].grad, tolerance),
        (sums[0], known[1].grad, 1e-3),
        (sums[1], known[2].grad, 1e-3),
    ]


finish("triton_layer_norm", [*run(torch.float32, 2e-5), *run(torch.float16, 2e-2)])
