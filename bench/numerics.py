"""Native numerics against the exact models of NVIDIA's units on the CPU, and what drawing envelopes costs."""

from __future__ import annotations

import statistics
import time
from pathlib import Path

import numpy

import zluda

CORPUS = Path(__file__).resolve().parents[1] / "corpus"
INSTRUCTIONS = (
    *("rcp.approx.ftz.f32", "rcp.approx.f32", "rsqrt.approx.ftz.f32", "rsqrt.approx.f32", "sqrt.approx.f32"),
    *("ex2.approx.ftz.f32", "lg2.approx.f32", "sin.approx.f32", "cos.approx.f32", "tanh.approx.f32"),
    "div.full.f32",
)
THREADS, STEPS, CHAINS, ROUNDS = 1 << 17, 8, 6, 9


def text(instruction: str) -> str:
    """A kernel of ``CHAINS`` times ``STEPS`` uses of ``x = 1 + f(x)/4``, which stays near 1."""
    first = "%one, " if instruction.startswith("div") else ""
    names = [f"%x{i}" for i in range(CHAINS)]
    step = "".join(f"    {instruction} {x}, {first}{x};\n" for x in names)
    step += "".join(f"    fma.rn.f32 {x}, {x}, %quarter, %one;\n" for x in names)
    begin = "".join(f"    add.rn.f32 {x}, %x, 0f{0x3F800000 + 8 * i:08X};\n" for i, x in enumerate(names))
    end = "".join(f"    add.rn.f32 %x, %x, {x};\n" for x in names)
    return f""".version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 p)
{{
    .reg .b64 %a, %s;
    .reg .b32 %i, %t;
    .reg .f32 %x, %one, %quarter, {", ".join(names)};
    ld.param.u64 %a, [p];
    mov.u32 %i, %tid.x;
    mov.u32 %t, %ctaid.x;
    mad.lo.u32 %i, %t, 256, %i;
    mul.wide.u32 %s, %i, 4;
    add.s64 %a, %a, %s;
    mov.f32 %one, 0f3F800000;
    mov.f32 %quarter, 0f3E800000;
    ld.global.f32 %x, [%a];
{begin}{step * STEPS}{end}    st.global.f32 [%a], %x;
    ret;
}}
"""


def compare(instruction: str) -> tuple[float, float]:
    """Nanoseconds an instruction and 16 lanes, by the exact model and native; the rounds take turns."""
    times: dict[str, list[float]] = {"nvidia": [], "native": []}
    devices = {kind: zluda.open_device("cpu", numerics=kind) for kind in times}
    try:
        values = numpy.random.default_rng(1).uniform(0.5, 2, THREADS).astype(numpy.float32)
        launches = {}
        for kind, device in devices.items():
            array = device.array(values)
            launches[kind] = (device.load_module(text(instruction)).kernel("k"), array)
        for _ in range(ROUNDS + 1):
            for kind, (kernel, array) in launches.items():
                start = time.perf_counter()
                kernel.launch(grid=THREADS // 256, block=256, args=[array])
                times[kind].append(time.perf_counter() - start)
    finally:
        for device in devices.values():
            device.close()
    uses = THREADS * STEPS * CHAINS / 16
    nvidia, native = (min(times[kind][1:]) * 1e9 / uses for kind in ("nvidia", "native"))
    return nvidia, native


def replay_seconds(program: str, numerics: str) -> float:
    """The quickest of three replays on the CPU."""
    path = CORPUS / program / "trace.bin"
    return min(zluda.replay(path, device="cpu", numerics=numerics).seconds for _ in range(3))


def main() -> None:
    """Print a line an instruction, and one a program."""
    ratios = []
    for instruction in INSTRUCTIONS:
        nvidia, native = compare(instruction)
        ratios.append(nvidia / native)
        faster = f"{nvidia / native:4.1f} × quicker"
        print(f"{instruction:20} {nvidia:6.1f} ns exact model, {native:5.1f} native: {faster}")
    print(f"geometric mean: {statistics.geometric_mean(ratios):.1f} ×  (16 lanes, all threads)")
    for program in ("black_scholes", "nbody"):
        nvidia, native = (replay_seconds(program, kind) for kind in ("nvidia", "native"))
        cost = f"{native / nvidia:.1f} ×"
        print(f"replay of {program}: {nvidia:.1f} s nvidia, {native:.1f} s native with envelopes: {cost}")


if __name__ == "__main__":
    main()
