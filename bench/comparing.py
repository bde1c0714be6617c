"""Comparing buffers that differ: all metrics of a type in one pass, beside numpy's own ULP comparison.

Rates are of bytes of one side, on one core, in processor time: the best of a few passes over 16 MiB.
``numpy.testing.assert_array_max_ulp`` is the peer: it gives one number of what the pass here gives, of f16,
f32 and f64 only.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from zluda.diff.kinds import element_type
from zluda.diff.metrics import metrics_of

SIZE, ROUNDS = 16 << 20, 5
SHARES = {"none differs": 0.0, "1 % differ": 0.01, "all differ": 1.0}
SPECIAL = 1000  # in the last column, one number in so many is zero or NaN in the record
TYPES = ("f32", "f64", "f16", "bf16", "e4m3", "u32")


def rate(work: Callable[[], object]) -> float:
    """MB/s of the best pass."""
    best = float("inf")
    for _ in range(ROUNDS):
        started = time.process_time()
        work()
        best = min(best, time.process_time() - started)
    return SIZE / best / 1e6


def contents(name: str, share: float) -> tuple[np.ndarray, np.ndarray]:
    """Normal numbers, and the same with some moved by 1 to 15 units in the last place (one where two numbers
    in three would become another kind: of 8 bits).
    """
    kind = element_type(name)
    random = np.random.default_rng(1)
    count = SIZE // kind.size
    if kind.kind == "float" and kind.size > 1 and name != "bf16":
        left = random.uniform(1.0, 2.0, count).astype(f"<f{kind.size}").view(f"<u{kind.size}")
    else:
        left = random.integers(0x30, 0x38, count).astype(f"<u{kind.size}") << 8 * (kind.size - 1)
    moved = random.random(count) < share
    units = random.integers(1, 16 if kind.size > 1 else 2, count)
    return left, left + (moved * units).astype(left.dtype)


def with_special(left: np.ndarray, name: str) -> np.ndarray:
    """With zeros and, of floats, NaNs among the numbers."""
    found = left.copy()
    found[::SPECIAL] = 0
    found[SPECIAL // 2 :: SPECIAL] = (1 << (element_type(name).bits or 8) - 1) - 1
    return found


def main() -> None:
    print(f"{'metrics, MB/s':<30}" + "".join(f"{name:>14}" for name in (*SHARES, "some special")))
    for name in TYPES:
        kind = element_type(name)
        rates = []
        for share in SHARES.values():
            left, right = contents(name, share)
            rates.append(rate(lambda left=left, right=right, kind=kind: metrics_of(left, right, kind)))  # type: ignore[misc]
        left = with_special(left, name)
        rates.append(rate(lambda left=left, right=right, kind=kind: metrics_of(left, right, kind)))  # type: ignore[misc]
        print(f"{name:<30}" + "".join(f"{one:>14,.0f}" for one in rates))
    left, right = (side.view("<f4") for side in contents("f32", 1.0))
    numpy_rate = rate(lambda: np.testing.assert_array_max_ulp(left, right, 15))
    ours = rate(lambda: metrics_of(left.view("<u4"), right.view("<u4"), element_type("f32")))
    print(f"numpy's assert_array_max_ulp, f32, all differ: {numpy_rate:,.0f} MB/s")
    print(f"all metrics here: {ours / numpy_rate:.2f} times that")


if __name__ == "__main__":
    main()
