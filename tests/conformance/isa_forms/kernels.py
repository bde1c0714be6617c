"""Groups of forms as PTX kernels, and how their buffers lie.

A kernel is ``forms(in0, in1, in2, out)``, all 64-bit pointers. Thread ``i`` reads its operands from the
64-bit words ``in0[i]`` … and stores each form's result, in the result's own width, at ``out + form offset +
i * width``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from isa_forms.form import KINDS, Form
from isa_forms.inputs import result_count

THREADS = 128  # per block
PER_KERNEL = 24
ENTRY = "forms"


@dataclass(frozen=True)
class Group:
    """Forms that share their operands and one kernel."""

    name: str
    sources: tuple[str, ...]
    forms: tuple[Form, ...]

    @property
    def count(self) -> int:
        """Results of each form."""
        return result_count(self.sources)

    @property
    def offsets(self) -> list[int]:
        """Byte offset of each form's results in the output buffer, and the buffer's size last."""
        offsets = [0]
        for form in self.forms:
            offsets.append(offsets[-1] + self.count * result_bytes(form))
        return offsets

    @property
    def target(self) -> str:
        """The architecture it is for."""
        return self.forms[0].target

    @property
    def grid(self) -> int:
        """Blocks of the launch."""
        return self.count // THREADS

    def ptx(self) -> str:
        """The module's text."""
        return kernel_text(self)


def result_bytes(form: Form) -> int:
    """Width of one result in the output buffer."""
    return KINDS[form.result][2]


def groups(forms: Iterable[Form]) -> list[Group]:
    """Kernels of at most :data:`PER_KERNEL` forms; forms of one kernel share family and sources."""
    batches: dict[tuple[str, tuple[str, ...]], list[Form]] = {}
    alone: list[Group] = []
    for form in forms:
        if form.alone:
            alone.append(Group(form.name, form.sources, (form,)))
        else:
            batches.setdefault((form.family, form.sources), []).append(form)
    made = []
    for (family, sources), members in batches.items():
        for start in range(0, len(members), PER_KERNEL):
            chunk = tuple(members[start : start + PER_KERNEL])
            made.append(Group(f"{family} {' '.join(sources)} #{start // PER_KERNEL}", sources, chunk))
    return made + alone


_LOADS = """\
\tmul.wide.u32 %off, %i, 8;
\tadd.s64 %pa, %base0, %off;
\tadd.s64 %pb, %base1, %off;
\tadd.s64 %pc, %base2, %off;
"""


def _load(letter: str, kind: str) -> list[str]:
    register, suffix, _ = KINDS[kind]
    if kind == "pred":
        return [
            f"\t.reg .b16 %w{letter};",
            f"\t.reg .pred %{letter};",
            f"\tld.global.u8 %w{letter}, [%p{letter}];",
            f"\tsetp.ne.b16 %{letter}, %w{letter}, 0;",
        ]
    return [f"\t.reg {register} %{letter};", f"\tld.global.{suffix} %{letter}, [%p{letter}];"]


def _scope(form: Form, offset: int) -> str:
    register, suffix, width = KINDS[form.result]
    names = {"d": "%d", "a": "%a", "b": "%b", "c": "%c"}
    text = re.sub(r"\{([dabc])\}", lambda m: names[m[1]], form.body)
    lines = [line.strip() for line in text.strip().splitlines()]
    store = f"\tst.global.{suffix} [%out{width}+{offset}], %d;"
    return "\n".join(["\t{", f"\t.reg {register} %d;", *("\t" + line for line in lines), store, "\t}"])


def kernel_text(group: Group) -> str:
    """PTX of one group."""
    declarations = dict.fromkeys(form.declarations for form in group.forms if form.declarations)
    parameters = ", ".join(f".param .u64 p{n}" for n in range(4))
    header = f".version 9.0\n.target {group.target}\n.address_size 64\n"
    entry = f".visible .entry {ENTRY}({parameters}) {group.forms[0].directive}".rstrip()
    lines = [header + "\n".join(declarations), entry, "{"]
    lines += ["\t.reg .b64 %base<3>, %out, %off, %pa, %pb, %pc, %out1, %out2, %out4, %out8;"]
    lines += ["\t.reg .b32 %i, %thread, %lane, %block, %threads;"]
    lines += [f"\tld.param.u64 %base{n}, [p{n}];" for n in range(3)]
    lines += ["\tld.param.u64 %out, [p3];", "\tmov.u32 %thread, %tid.x;", "\tmov.u32 %lane, %laneid;"]
    lines += ["\tmov.u32 %block, %ctaid.x;", "\tmov.u32 %threads, %ntid.x;"]
    lines += ["\tmad.lo.u32 %i, %block, %threads, %thread;", _LOADS.rstrip("\n")]
    for letter, kind in zip("abc", group.sources, strict=False):
        lines += _load(letter, kind)
    for width in sorted({result_bytes(form) for form in group.forms}):
        lines += [f"\tmul.wide.u32 %off, %i, {width};", f"\tadd.s64 %out{width}, %out, %off;"]
    lines += [_scope(form, offset) for form, offset in zip(group.forms, group.offsets, strict=False)]
    return "\n".join([*lines, "\tret;", "}", ""])
