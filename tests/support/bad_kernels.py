"""A recorded program one kernel of which goes wrong, for replays on any device."""

from __future__ import annotations

from pathlib import Path

from kernels import ADD, HEADER, LAYOUT, added, parameters, ramp
from trace_builder import TraceBuilder

from zluda.diff.results import Verdict

_ENTRY = ".visible .entry other(.param .u64 a, .param .u64 b, .param .u32 c)"

TRAP = f"{_ENTRY} {{ trap; }}"

STRAY = f"""{_ENTRY}
{{
    .reg .b64 %rd<2>;
    mov.u64 %rd1, 8;
    st.global.u64 [%rd1], %rd1;
    ret;
}}
"""

ENDLESS = f"""{_ENTRY}
{{
    .reg .b64 %rd<2>;
    .reg .b32 %r<2>;
    ld.param.u64 %rd1, [a];
AGAIN:
    ld.volatile.global.u32 %r1, [%rd1];
    st.volatile.global.u32 [%rd1], %r1;
    bra AGAIN;
}}
"""

MULTICAST = f"""{_ENTRY}
{{
    .reg .b64 %rd<2>;
    .reg .f32 %f<2>;
    ld.param.u64 %rd1, [a];
    mov.f32 %f1, 0f00000000;
    multimem.red.relaxed.sys.global.add.f32 [%rd1], %f1;
    ret;
}}
"""

BAD = {
    "trap": (TRAP, Verdict.CRASH, "other"),
    "stray": (STRAY, Verdict.CRASH, "other"),
    "endless": (ENDLESS, Verdict.HANG, "other"),
    "multicast": (MULTICAST, Verdict.UNSUPPORTED, "multimem"),
}
"""Name → (PTX of a kernel ``other``, what becomes of its launch, a word of the reason)."""


class Program:
    """``x += y`` by launches of ``add``, among launches of ``other``; ``count`` is no multiple of a block."""

    def __init__(self, path: Path, text: str, count: int = 200) -> None:
        self.count, self.size = count, 4 * count
        self.record = record = TraceBuilder(path)
        record.start()
        module = record.module(HEADER + ADD + text)
        self.add, self.other = (record.function(module, name, LAYOUT) for name in ("add", "other"))
        self.x, self.y = record.allocate(self.size), record.allocate(self.size)
        record.copy_in(self.x, ramp(count))
        record.copy_in(self.y, ramp(count, 0.25))

    @property
    def parameters(self) -> bytes:
        """What every launch is given."""
        return parameters(self.x, self.y, self.count)

    def sum(self) -> bytes:
        """What ``x`` is after the next launch of ``add``."""
        return added(self.record.read(self.x, self.size), self.record.read(self.y, self.size))

    def run(self, result: bytes | None = None) -> None:
        """A launch of ``add``, with what it is said to have written."""
        writes = {self.x: self.sum() if result is None else result}
        grid = (-(-self.count // 128), 1, 1)
        self.record.launch(self.add, self.parameters, writes, grid=grid, block=(128, 1, 1))

    def run_other(self) -> None:
        """A launch of ``other``."""
        self.record.launch(self.other, self.parameters, {self.x: ramp(self.count, 5.0)})

    def close(self) -> None:
        """A copy of ``x`` to the host, and the end."""
        self.record.copy_out(self.x, self.size)
        self.record.__exit__()

    def run_among_others(self) -> None:
        """``add``, ``other``, ``add``: one bad kernel is to cost one verdict."""
        self.run()
        self.run_other()
        self.run()
        self.close()
