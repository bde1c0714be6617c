"""How fast PTX parses: ``python bench/parse.py [megabytes]``.

Generates a module of many kernels in the style of nvcc's output (instruction mix by frequency in real PTX)
and prints the rate of a full parse in MB/s on one core, the time to skim it, and the time until one kernel
of it is there; processor time, so that other work on the machine does not count. ``bench_parse()`` returns
the same as a dict.
"""

from __future__ import annotations

import random
import sys
import time

from zluda.ptx import parse_module

_MIX = [
    (234, "mov.b32 \t%r{a}, {imm};"),
    (200, "add.s32 \t%r{a}, %r{b}, %r{c};"),
    (180, "fma.rn.f32 \t%f{a}, %f{b}, %f{c}, %f{d};"),
    (160, "add.s64 \t%rd{a}, %rd{b}, {imm};"),
    (154, "mov.u32 \t%r{a}, %r{b};"),
    (150, "@%p{p} bra \t$L__BB{k}_{label};"),
    (105, "mul.f32 \t%f{a}, %f{b}, %f{c};"),
    (92, "add.f32 \t%f{a}, %f{b}, 0f{bits:08X};"),
    (66, "and.b32  \t%r{a}, %r{b}, {imm};"),
    (62, "shfl.sync.bfly.b32 \t%r{a}|%p{p}, %r{b}, 16, 31, -1;"),
    (56, "shl.b32 \t%r{a}, %r{b}, 2;"),
    (40, "selp.f32 \t%f{a}, %f{b}, %f{c}, %p{p};"),
    (38, "ld.global.u32 \t%r{a}, [%rd{b}+{off}];"),
    (33, "setp.eq.s32 \t%p{p}, %r{a}, %r{b};"),
    (30, "ld.shared.f32 \t%f{a}, [%r{b}+{off}];"),
    (27, "mul.wide.s32 \t%rd{a}, %r{b}, 4;"),
    (26, "cvta.to.global.u64 \t%rd{a}, %rd{b};"),
    (14, "ld.shared.v4.u32 \t{{%r{a}, %r{b}, %r{c}, %r{d}}}, [%r{a}+{off}];"),
    (14, "bar.sync \t0;"),
    (12, "st.global.f32 \t[%rd{a}+{off}], %f{b};"),
    (6, "atom.global.add.f32 \t%f{a}, [%rd{b}], %f{c};"),
]

_CALL = """\t{{ // callseq {n}, 0
\t.param .b64 param0;
\tst.param.b64 \t[param0], %rd{a};
\t.param .b32 retval0;
\tcall.uni (retval0), vprintf, (param0);
\tld.param.b32 \t%r{b}, [retval0];
\t}} // callseq {n}
"""


def generate(size: int, *, kernels: int = 40, seed: int = 1) -> str:
    """A module of about ``size`` bytes."""
    choose = random.Random(seed)
    weights, lines = zip(*_MIX, strict=True)
    parts = [
        "//\n// Generated\n//\n\n.version 8.3\n.target sm_90\n.address_size 64\n\n",
        ".extern .func (.param .b32 func_retval0) vprintf (.param .b64 vprintf_param_0);\n",
    ]
    for k in range(kernels):
        parts.append(_kernel(k, size // kernels, choose, weights, lines))
    return "".join(parts)


def _kernel(
    k: int, size: int, choose: random.Random, weights: tuple[int, ...], lines: tuple[str, ...]
) -> str:
    parts = [
        f".visible .entry kernel_{k}(\n\t.param .u64 kernel_{k}_param_0,\n",
        f"\t.param .u32 kernel_{k}_param_1\n)\n{{\n",
        "\t.reg .pred \t%p<64>;\n\t.reg .b32 \t%r<4000>;\n",
        "\t.reg .f32 \t%f<4000>;\n\t.reg .b64 \t%rd<1000>;\n\n",
    ]
    written, n, labels = 0, 0, max(size // 400, 1)
    while written < size:
        n += 1
        if n % 16 == 0 and n // 16 <= labels:
            parts.append(f"\n$L__BB{k}_{n // 16}:\n")
        if n % 500 == 0:
            parts.append(_CALL.format(n=n, a=choose.randrange(1000), b=choose.randrange(4000)))
        values = {name: choose.randrange(1000) for name in "abcd"}
        line = choose.choices(lines, weights)[0].format(
            **values,
            p=choose.randrange(64),
            k=k,
            imm=choose.randrange(-64, 4096),
            off=choose.randrange(0, 512) * 4,
            bits=choose.getrandbits(32),
            label=choose.randrange(1, max(min(n // 16, labels), 1) + 1),
        )
        parts.append(f"\t{line}\n")
        written += len(line) + 2
    first = max(n // 16, 0) + 1
    missing = "".join(f"$L__BB{k}_{i}:\n" for i in range(min(first, labels + 1), 2))
    return "".join([*parts, missing, "\tret;\n\n}\n\n"])


def bench_parse(megabytes: float = 5.0) -> dict[str, float]:
    """MB/s of a full parse, MB/s and seconds of the skim, seconds to the first kernel."""
    text = generate(int(megabytes * 1e6))
    size = len(text) / 1e6
    start = time.process_time()
    module = parse_module(text)
    skimmed = time.process_time()
    module.function(module.kernel_names[0])
    first = time.process_time()
    lost = parse_module(text).errors()
    done = time.process_time()
    if lost:
        raise next(iter(lost.values()))
    return {
        "megabytes": size,
        "kernels": len(module.kernel_names),
        "full_mb_per_s": size / (done - first),
        "skim_seconds": skimmed - start,
        "skim_mb_per_s": size / (skimmed - start),
        "kernel_milliseconds": (first - skimmed) * 1e3,
    }


if __name__ == "__main__":
    for name, value in bench_parse(*map(float, sys.argv[1:2])).items():
        print(f"{name:22} {value:10.2f}")
