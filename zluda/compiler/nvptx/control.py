"""Control flow as PTX has it, with what it says of loops: ``.pragma "nounroll"`` (PTX ISA 11.5)."""

from __future__ import annotations

from collections.abc import Callable

from zluda.compiler.codegen import FunctionCodegen
from zluda.compiler.ir import Module
from zluda.compiler.native import NativeControl


class LoopControl(NativeControl):
    """Branches back to a block with the pragma carry LLVM's word for it, which its back end writes out."""

    def __init__(self, f: FunctionCodegen, leave: Callable[[], None]) -> None:
        super().__init__(f, leave)
        marked = {p.ordinal for p in f.function.pragmas if p.text == "nounroll" and not p.before_label}
        self.kept = {
            index
            for index in f.order.sequence
            if any(i.ordinal in marked for i in f.graph.blocks[index].instructions)
        }
        self.place = {index: n for n, index in enumerate(f.order.sequence)}

    def end(self, index: int) -> None:
        """As the graph has it; noted where it goes back to such a loop."""
        super().end(index)
        back = [
            s for s in self.f.graph.blocks[index].successors if self.place.get(s, -1) <= self.place[index]
        ]
        if self.kept.intersection(back) and self.f.b.lines[-1].startswith("br "):
            self.f.b.lines[-1] += f", !llvm.loop {_loop(self.f.b.module)}"


def _loop(module: Module) -> str:
    """Metadata that names one more loop."""
    words = "!zluda.kept"
    module.globals[words] = '!1 = !{!"llvm.loop.unroll.disable"}'
    name = f"!{2 + sum(key.startswith('!loop') for key in module.globals)}"
    module.globals[f"!loop{name}"] = f"{name} = distinct !{{{name}, !1}}"
    return name
