"""What a kernel reads of its surroundings, told to LLVM so that nothing else is prepared for it.

Workgroup and workitem numbers, the dispatch packet and the implicit arguments come in registers that a kernel
which does not read them need not give up (LLVM "User Guide for AMDGPU Backend", "AMDGPU LLVM IR Attributes").
LLVM finds this out itself in its full pipeline; the short one of ``llvm.py`` is told.
"""

from __future__ import annotations

from collections.abc import Sequence

_NEVER = ("dispatch-id", "queue-ptr", "lds-kernel-id", "cluster-id-x", "cluster-id-y", "cluster-id-z")
# HIP 5 loads code objects of version 4 and refuses a kernel that lists one that it does not know.
_HIDDEN = ("hostcall-ptr", "default-queue", "completion-action", "multigrid-sync-arg", "heap-ptr")
_READ_BY = {
    **{f"workgroup-id-{axis}": f"llvm.amdgcn.workgroup.id.{axis}" for axis in "xyz"},
    **{f"workitem-id-{axis}": f"llvm.amdgcn.workitem.id.{axis}" for axis in "xyz"},
    "dispatch-ptr": "llvm.amdgcn.dispatch.ptr",
    "implicitarg-ptr": "llvm.amdgcn.implicitarg.ptr",
    "flat-scratch-init": "addrspace(5)",
}
"""Input → what reads it: an intrinsic, or a pointer to scratch memory."""


def in_all(attributes: Sequence[str]) -> str:
    """The attributes that every one of several lists has."""
    first, *others = (each.split() for each in attributes)
    return " ".join(one for one in first if all(one in other for other in others))


def unread_inputs(text: str) -> str:
    """Attributes for every function of a module's IR text: the inputs that none of them reads."""
    unread = [name for name, reader in _READ_BY.items() if reader not in text]
    # Accumulation registers are for matrix instructions, of which there are none.
    return " ".join(f'"amdgpu-no-{n}"' for n in (*unread, *_NEVER, *_HIDDEN)) + ' "amdgpu-agpr-alloc"="0"'
