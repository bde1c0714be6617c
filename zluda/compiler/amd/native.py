"""Control flow on AMD GPUs: PTX's own graph. LLVM's back end turns divergent branches into EXEC masks."""

from __future__ import annotations

from zluda.compiler.analysis.cfg import EXIT, Branch, Jump, Leave, Switch
from zluda.compiler.codegen import FunctionCodegen

DONE, LEAVE = "done", "leave"
"""Where ``ret`` goes, and ``exit``."""


class NativeControl:
    """Writes blocks and branches, up to the label ``done``; what stands there is the caller's."""

    def __init__(self, f: FunctionCodegen) -> None:
        self.f, self.b = f, f.b

    def write(self) -> None:
        order = self.f.order.sequence
        self.b.branch(_label(order[0]))
        for index in order:
            self.b.label(_label(index))
            self.f.block(index, None)
            self._end(index)
        self.b.label(DONE)

    def _end(self, index: int) -> None:
        match self.f.graph.blocks[index].terminator:
            case Jump(target):
                self.b.branch(_label(target))
            case Leave(exits):
                self.b.branch(LEAVE if exits else DONE)
            case Branch() as branch:
                predicate = self.f.predicate(branch.predicate, branch.negated).parts[0]
                self.b.cond_branch(predicate, _label(branch.taken), _label(branch.otherwise))
            case Switch(operand, targets):
                chosen = self.f.read_bits(operand, 32).parts[0]
                self.b.switch(chosen, _label(targets[-1]), [(i, _label(t)) for i, t in enumerate(targets)])


def _label(index: int) -> str:
    return DONE if index == EXIT else f"block.{index}"
