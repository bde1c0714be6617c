"""Writes ``triton_matmul_*.ptx`` (without debug information); ran with Triton 3.9.0, which no test needs."""

import sys

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


@triton.jit
def matmul(a, b, c, M, N, K, a_row, b_row, c_row, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    along = tl.arange(0, BK)
    a_at = a + rows[:, None] * a_row + along[None, :]
    b_at = b + along[:, None] * b_row + columns[None, :]
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for _ in range(0, K, BK):
        total = tl.dot(tl.load(a_at), tl.load(b_at), total)
        a_at += BK
        b_at += BK * b_row
    tl.store(c + rows[:, None] * c_row + columns[None, :], total)


def main(capability: int, element: str) -> None:
    """Print the PTX for a compute capability and an element type (``fp16``, ``bf16``, ``fp8e4nv``)."""
    pointers = {"a": f"*{element}", "b": f"*{element}", "c": "*fp32"}
    sizes = dict.fromkeys(("M", "N", "K", "a_row", "b_row", "c_row"), "i32")
    blocks = {"BM": 64, "BN": 64, "BK": 64}
    source = ASTSource(
        fn=matmul,
        signature=pointers | sizes | dict.fromkeys(blocks, "constexpr"),
        constexprs=blocks,
        attrs={(i,): [["tt.divisibility", 16]] for i in range(9)},
    )
    target = GPUTarget("cuda", capability, 32)
    print(triton.compile(source, target=target, options={"num_warps": 4, "num_stages": 2}).asm["ptx"])


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
