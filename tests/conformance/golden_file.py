"""The golden file: what an NVIDIA GPU computed for every form.

    python tests/conformance/golden_file.py golden.npz PART.npz …      add the forms of others to it

One compressed ``.npz``: ``names`` and, for each form, a 128-bit BLAKE2b digest of every block of 4096
results and the bytes of its first ``kept`` results. ``groups`` maps each kernel's operand kinds to the
digest of its operands, so that a changed generator is told from a wrong result. ``meta`` is JSON: GPU,
driver, date, …
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from isa_forms.inputs import BLOCK, Words
from numpy.typing import NDArray

PATH = Path(__file__).parent / "golden.npz"
DIGEST = 16
KEPT = (256, 192, 128, 96, 64, 48, 32)
MAXIMUM_BYTES = 2_500_000


@dataclass(frozen=True)
class Expected:
    """One form's golden results."""

    digests: tuple[bytes, ...]
    head: bytes


def digests(results: bytes, width: int) -> list[bytes]:
    """One digest for every block of :data:`BLOCK` results of ``width`` bytes."""
    step = BLOCK * width
    return [
        hashlib.blake2b(results[k : k + step], digest_size=DIGEST).digest()
        for k in range(0, len(results), step)
    ]


def operand_digest(words: Iterable[Words]) -> str:
    """Names the operand values of a group."""
    whole = hashlib.blake2b(digest_size=DIGEST)
    for array in words:
        whole.update(array.astype("<u8").tobytes())
    return whole.hexdigest()


def save(
    path: Path,
    results: Mapping[str, tuple[int, bytes]],
    operand_digests: Mapping[str, str],
    meta: Mapping[str, Any],
) -> int:
    """Write ``results`` (form → width, bytes), keeping as many leading results as fit. Returns that
    number."""
    names = list(results)
    blocks = [tuple(digests(data, width)) for width, data in results.values()]
    for kept in KEPT:
        heads = [data[: kept * width] for width, data in results.values()]
        expected = [Expected(b, h) for b, h in zip(blocks, heads, strict=True)]
        _write(path, names, expected, {**meta, "kept": kept, "operands": dict(operand_digests)})
        if path.stat().st_size <= MAXIMUM_BYTES:
            break
    return kept


def join(target: Path, parts: Iterable[Path]) -> None:
    """Add the forms of other golden files to ``target``; what both hold is taken from the later one."""
    forms: dict[str, Expected] = {}
    meta: dict[str, Any] = {}
    for path in (target, *parts):
        found, about = load(path)
        forms |= found
        meta = about | {"operands": meta.get("operands", {}) | about["operands"]}
    _write(target, list(forms), list(forms.values()), meta)


def _write(path: Path, names: list[str], expected: list[Expected], meta: Mapping[str, Any]) -> None:
    arrays: dict[str, NDArray[Any]] = {
        "names": np.frombuffer("\n".join(names).encode(), dtype=np.uint8),
        "block_counts": np.array([len(e.digests) for e in expected], dtype=np.uint8),
        "digests": np.frombuffer(b"".join(d for e in expected for d in e.digests), dtype=np.uint8),
        "head_bytes": np.array([len(e.head) for e in expected], dtype=np.uint16),
        "heads": np.frombuffer(b"".join(e.head for e in expected), dtype=np.uint8),
        "meta": np.frombuffer(json.dumps(meta).encode(), dtype=np.uint8),
    }
    np.savez_compressed(path, **arrays)


def load(path: Path = PATH) -> tuple[dict[str, Expected], dict[str, Any]]:
    """Golden results by form name, and the meta data."""
    with np.load(path) as file:
        names = file["names"].tobytes().decode().split("\n")
        meta = json.loads(file["meta"].tobytes())
        all_digests, heads = file["digests"].tobytes(), file["heads"].tobytes()
        counts, sizes = file["block_counts"].tolist(), file["head_bytes"].tolist()
    expected: dict[str, Expected] = {}
    block = head = 0
    for name, count, size in zip(names, counts, sizes, strict=True):
        own = tuple(all_digests[(block + k) * DIGEST : (block + k + 1) * DIGEST] for k in range(count))
        expected[name] = Expected(own, heads[head : head + size])
        block, head = block + count, head + size
    return expected, meta


if __name__ == "__main__":
    import sys

    join(Path(sys.argv[1]), map(Path, sys.argv[2:]))
