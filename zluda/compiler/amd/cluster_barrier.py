"""The cluster's barrier on AMD GPUs (PTX ISA 9.7.13.4): one word in memory that its threads count in.

From the lowest bit: 24 bits of threads that have arrived in this phase, 24 of threads that have left the
kernel, 16 of phases. Who completes a phase begins the next; who waits polls. A cluster of one block has the
word in LDS.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from zluda.compiler.amd.barriers import BarrierOps
from zluda.compiler.amd.special import block_threads
from zluda.compiler.amd.unit import CLUSTER_BARRIER, meets_cluster
from zluda.compiler.gpu.thread import GLOBAL, SHARED
from zluda.compiler.ir import Value, constant
from zluda.errors import UnsupportedError

if TYPE_CHECKING:
    from zluda.compiler.codegen import FunctionCodegen

_COUNT_BITS, _LEFT_AT, _PHASE_AT = 24, 24, 48
_COUNT = (1 << _COUNT_BITS) - 1
_PHASE_VARIABLE = "%cluster.phase"


class ClusterBarrierOps(BarrierOps):
    """The part of AMD's TargetOps about the cluster's barrier."""

    def cluster_arrive(self, f: FunctionCodegen) -> None:
        """See :class:`~zluda.compiler.target.TargetOps`. The thread notes in which phase it arrives."""
        phase = f.stack_variables.get(_PHASE_VARIABLE)
        if phase is None:
            phase = f.stack_variables[_PHASE_VARIABLE] = f.b.alloca("i32", align=4)
        f.b.store(self._phase(f), phase, align=4)
        self._add(f, 0)

    def cluster_wait(self, f: FunctionCodegen) -> None:
        """See :class:`~zluda.compiler.target.TargetOps`."""
        b = f.b
        phase = f.stack_variables.get(_PHASE_VARIABLE)
        if phase is None:
            raise UnsupportedError("barrier.cluster.wait ahead of barrier.cluster.arrive in a function")
        poll, done = b.fresh("await"), b.fresh("past")
        mine = b.load("i32", phase, align=4)
        b.branch(poll)
        b.label(poll)
        b.cond_branch(b.icmp("eq", self._phase(f), mine), poll, done)
        b.label(done)

    def leave(self, f: FunctionCodegen) -> None:
        """Before threads leave the kernel: nobody waits for them from now on."""
        if meets_cluster(f.unit):
            self._add(f, _LEFT_AT)

    def _word(self, f: FunctionCodegen) -> Value:
        if f.unit.clustered:
            return f.b.cast("inttoptr", self.cluster_record(f), GLOBAL)
        return f.b.cast("inttoptr", constant("i32", f.unit.shared.offsets[CLUSTER_BARRIER]), SHARED)

    def _phase(self, f: FunctionCodegen) -> Value:
        b = f.b
        state = b.define("i64", 1, f"load volatile i64, {self._word(f).typed}, align 8")
        return b.trunc(b.lshr(state, _PHASE_AT), "i32")

    def _add(self, f: FunctionCodegen, field: int) -> None:
        """Count the executing threads, at ``field``, and begin the next phase where they were the last."""
        b = f.b
        word, scope = self._word(f), "agent" if f.unit.clustered else "workgroup"
        threads = b.zext(b.mul(block_threads(self, f), f.unit.together.blocks), "i64")
        amount = b.shl(b.zext(b.intrinsic("ctpop", self.executing(f)), "i64"), field)
        seen = b.alloca("i64", align=8)
        lead, again, done = b.fresh("count"), b.fresh("again"), b.fresh("counted")
        b.cond_branch(self._leads(f), lead, done)
        b.label(lead)
        b.store(b.define("i64", 1, f"load volatile i64, {word.typed}, align 8"), seen, align=8)
        b.branch(again)
        b.label(again)
        old = b.load("i64", seen, align=8)
        new = b.add(old, amount)
        arrived = b.and_(new, _COUNT)
        all_counted = b.add(arrived, b.and_(b.lshr(new, _LEFT_AT), _COUNT))
        complete = b.and_(b.icmp("ne", arrived, 0), b.icmp("uge", all_counted, threads))
        next_phase = b.add(b.sub(new, arrived), 1 << _PHASE_AT)
        kept = b.select(complete, next_phase, new)
        order = f'syncscope("{scope}") acq_rel acquire'
        pair = b.define("pair", 1, f"cmpxchg {word.typed}, {old.typed}, {kept.typed} {order}")
        b.store(b.define("i64", 1, f"extractvalue {{ i64, i1 }} {pair.ref}, 0"), seen, align=8)
        b.cond_branch(b.define("i1", 1, f"extractvalue {{ i64, i1 }} {pair.ref}, 1"), done, again)
        b.label(done)
