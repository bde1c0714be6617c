"""``docs/ptx-support.md`` and ``docs/exactness.md``: from the table, its lowerings and the evidence."""

from __future__ import annotations

import collections
import functools
import gzip
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import golden_file
import judge
import numpy
import ptx_support
import tensor_vectors
from isa_forms import all_forms
from isa_forms.inputs import BLOCK
from ptx_support import DEVICES
from texture_cases.golden import allowed, golden_cases

from zluda.compiler.textures import OPCODES as TEXTURES
from zluda.ptx.instructions import OpcodeMismatch, Row, find_opcode
from zluda.ptx.table import FAMILIES

ROOT = Path(__file__).resolve().parents[1]
GENERATED = "<!-- written by scripts/generate_docs.py (make docs) -->\n"

_TITLES = {
    "arithmetic": "Integer and floating-point arithmetic, logic, shifts",
    "compare": "Comparison and selection",
    "convert": "Conversion",
    "memory": "Data movement",
    "asynchronous": "Asynchronous copies, tensor maps, mbarriers",
    "texture": "Textures and surfaces",
    "control": "Control flow and miscellaneous",
    "synchronise": "Barriers, fences, atomics, votes",
    "matrix": "Matrices",
    "video": "Video",
}
_INTRODUCTION = """\
Every instruction of the PTX ISA 9.0, by the rows of the instruction table (`zluda/ptx/table/`), on each
device.
Of each row, combinations of types and needed words were lowered, up to forty, and each word at least once:

- `exact`: all are lowered, and recorded results of an NVIDIA GPU come out bit for bit;
- `approximate`: all are lowered, and of the recorded results some differ in last bits, which
  [textures](textures.md#how-far-it-agrees) lists;
- `yes`: all are lowered as the ISA says; no GPU's results are recorded;
- `native`: all are lowered; computed by the device's own approximate units inside PTX's bound, and `exact`
  with `--numerics nvidia`;
- `but`: all are lowered but those with these words; `partly`: some combinations are not;
- `no`: refused by name (`UnsupportedError`, verdict `unsupported`).

*Checked* counts forms of the row, or that execute it, whose results are held against an H200's;
[exactness](exactness.md) says what evidence there is beside. All AMD targets share one lowering; `gfx90a`
stands for waves of 64.""".splitlines()
_APPROXIMATE = ("ex2", "tanh", "rsqrt", "lg2", "sin", "cos")


def ptx_page() -> str:
    """Every row of the instruction table on every device."""
    checked = checked_rows()
    lines = ["# PTX support", "", GENERATED, *_INTRODUCTION]
    for family, title in _TITLES.items():
        opcodes = dict.fromkeys(line.split(".")[0].split()[0] for line in table_lines(family))
        lines += ["", f"## {title}", "", f"| instruction | types | {' | '.join(DEVICES)} | checked |"]
        lines += ["|---|---|" + "---|" * (len(DEVICES) + 1)]
        for row in ptx_support.support(list(opcodes)):
            cells = [_cell(row, device, checked[row.row.text]) for device in DEVICES]
            lines.append(
                f"| {_head(row)} | {_types(row)} | {' | '.join(cells)} | {checked[row.row.text] or ''} |"
            )
    known = judge.excused("cpu", all_forms())
    if known:
        lines += ["", "Forms that are checked and known not to hold:", ""]
        by_reason = collections.Counter((entry.outcome, entry.reason) for entry in known.values())
        lines += [f"- {count} forms: {outcome}: {reason}" for (outcome, reason), count in by_reason.items()]
    return "\n".join(lines) + "\n"


def table_lines(family: str) -> list[str]:
    """The rows of a family as text."""
    lines = (line.partition("#")[0].strip() for line in FAMILIES[family].splitlines())
    return [line for line in lines if line]


def _head(row: ptx_support.Support) -> str:
    dotted = row.row.text.split(";")[0].split("[")[0].split()[0]
    words = {m.name: m.words for m in row.row.modifiers if m.role == "slot" and len(m.words) == 1}
    for name, (word,) in words.items():
        dotted = re.sub(rf"\.{name}(?![\w:])", f".{word}", dotted)
    return f"`{dotted}`"


def _types(row: ptx_support.Support) -> str:
    lists = [sorted(m.words, key=_by_width) for m in row.row.modifiers if m.role == "type"]
    return " · ".join(" ".join(words) for words in lists)


def _by_width(word: str) -> tuple[str, int, str]:
    match = re.match(r"([a-z]+)(\d*)", word)
    return (match[1], int(match[2] or 0), word) if match else (word, 0, word)


def _cell(row: ptx_support.Support, device: str, checked: int) -> str:
    found = row.cell(device)
    if found != "yes":
        return found
    row_words = set().union(*(m.words for m in row.row.modifiers if not m.optional))
    approximate = row.row.opcode in _APPROXIMATE or row_words & {"approx", "full"}
    if approximate and device != "cpu":
        return "native"
    if texture_rows().get(row.row.text, (0, True))[1] is False:
        return "approximate"
    return "exact" if checked or approximate or _as_recorded(row.row) else "yes"


def checked_rows() -> collections.Counter[str]:
    """How many recorded forms each row of the instruction table has, by the row's text.

    Most forms are named after their instruction. Rows that no form is named after are looked for in what
    forms execute, where it shows in the result: carries, barriers, calls, objects in memory.
    """
    named: collections.Counter[str] = collections.Counter()
    within: collections.Counter[str] = collections.Counter()
    for form in all_forms():
        named.update(_rows_of(part.split()[0] for part in form.name.split(" + ")))
        within.update(set(_rows_of(_DOTTED.findall(form.body + "\n" + form.declarations))))
    for text, cases in within.items():
        if not named[text]:
            named[text] = cases
    return named + collections.Counter({text: cases for text, (cases, _) in texture_rows().items()})


_DOTTED = re.compile(r"(?:^|[;{]|:\s)\s*(?:@!?%\w+\s+)?([a-z]\w*(?:\.[\w:]+)*)(?=[\s;])", re.MULTILINE)
"""Where a statement may begin, and what may be its dotted opcode."""
_SILENT = frozenset(("fence", "membar", "nanosleep", "prefetch", "prefetchu", "pmevent", "exit"))
"""Instructions that leave nothing in a form's result to tell them by."""


def _rows_of(dotted: Iterable[str]) -> Iterator[str]:
    for name in dotted:
        try:
            row = find_opcode(name).forms[0].row
        except OpcodeMismatch:
            continue  # a form named otherwise ("mov {h, h} of b32"), or a word that is no instruction
        if row.opcode not in _SILENT:
            yield row.text


@functools.cache
def texture_rows() -> dict[str, tuple[int, bool]]:
    """How many recorded cases each texture and surface row has, and whether all are held bit for bit."""
    found: dict[str, tuple[int, bool]] = {}
    for name, case in golden_cases().items():
        for statement in case.form.split(";"):
            dotted = next((word for word in statement.split() if word.partition(".")[0] in TEXTURES), None)
            if dotted is not None:
                text = find_opcode(dotted).forms[0].row.text
                cases, exact = found.get(text, (0, True))
                found[text] = cases + 1, exact and not allowed(name)
    return found


def unit_hashes() -> list[tuple[str, str]]:
    """Each approximate unit and how many inputs its recorded hashes cover."""
    with numpy.load(ROOT / "tests" / "numerics" / "data" / "mufu_hashes.npz") as file:
        return [(name, "2^32" if len(file[name]) > 1 else "2^16") for name in file.files]


def _as_recorded(row: Row) -> bool:
    """Whether a matrix instruction moves elements only, or is one of those that vectors were recorded of."""
    if row.opcode not in ptx_support.TENSOR:
        return False
    return "btype" not in row.text or row.text in _recorded_products()


@functools.cache
def _recorded_products() -> frozenset[str]:
    vectors = tensor_vectors.vectors().values()
    return frozenset(form.row.text for vector in vectors for form in find_opcode(vector.ptx).forms)


def tensor_lines() -> list[str]:
    """Forms and elements of the recorded tensor-core vectors, by opcode."""
    found: dict[str, list[int]] = {}
    for vector in tensor_vectors.vectors().values():
        found.setdefault(vector.opcode, []).append(int(vector.d.size))
    lines = ["| instruction | forms | elements of D recorded |", "|---|---|---|"]
    lines += [f"| `{opcode}` | {len(sizes)} | {sum(sizes):,} |" for opcode, sizes in sorted(found.items())]
    return [
        *lines,
        "",
        "Tiles of operands and what an H200 computed of them; the CPU device gives the same bits.",
    ]


KINDS = """\
`mma` with a `.kind` (8-, 6- and 4-bit floats, scales of blocks), `ldmatrix` and `stmatrix` of bytes are on no
GPU that was at hand, and PTX leaves their order and rounding open: they stand as `yes`, not as `exact`.
[Tensor cores](tensor-cores.md#small-formats-and-scales-of-blocks) says what is computed.""".splitlines()


def texture_lines() -> list[str]:
    """What textures and surfaces are held to."""
    cases = golden_cases()
    whole = sum(1 for name in cases if not allowed(name))
    rows = sum(len(case.words) for case in cases.values())
    return f"""\
{len(cases)} cases, {rows:,} fetches and accesses, recorded on an H200; {whole} of them come out bit for bit.
The others are held to a share of rows that may differ, and [textures](textures.md#how-far-it-agrees) says
which and how far. Samplers of their own, samples, and queries other than width, height and depth are as the
ISA says.""".splitlines()


def contraction_lines() -> list[str]:
    """What the contraction pass is held to."""
    path = ROOT / "tests" / "compiler" / "contract" / "data" / "ptxas_fusions.json.gz"
    cases = json.loads(gzip.decompress(path.read_bytes()))
    sums = sum(len(case["fused"]) for case in cases)
    return f"""\
Whether an unsuffixed `add` is fused with the `mul` that feeds it decides last bits. The pass that decides it
(`zluda/compiler/contract/`) is held to {len(cases)} kernels with {sums:,} sums, each of which ptxas 13.0's
machine code fuses or does not, and to what an H200 computed of random kernels with branches and loops,
unrolled or not. [The compiler](compiler.md#contraction) says how far it agrees on kernels that it was not
made from.""".splitlines()


def exactness_page() -> str:
    """What is bit-exact, by which evidence."""
    golden, meta = golden_file.load()
    families: collections.Counter[str] = collections.Counter()
    results: collections.Counter[str] = collections.Counter()
    for form in all_forms():
        families[form.family] += 1
        results[form.family] += len(golden[form.name].digests) * BLOCK
    lines = ["# Exactness", "", GENERATED]
    lines += [
        "The CPU device computes what an NVIDIA GPU computes, bit for bit, and the AMD devices do with",
        "`--numerics nvidia`. What that rests on:",
        "",
        f"## Results of an {meta['gpu']}, form by form",
        "",
        f"{sum(families.values()):,} instruction forms, {sum(results.values()):,} results, recorded on",
        f"{meta['date']} with driver {meta['driver']}. Tests hold the CPU device and the emulated AMD",
        "devices to them ([conformance](conformance.md)).",
        "",
        "| family | forms | results |",
        "|---|---|---|",
        *(f"| {name} | {count:,} | {results[name]:,} |" for name, count in families.items()),
        "",
        "## Approximate units, all inputs",
        "",
        "| function | inputs | evidence |",
        "|---|---|---|",
        *(
            f"| `{name}` | {inputs} | hashes of the GPU's outputs, 2^20 inputs each |"
            for name, inputs in unit_hashes()
        ),
        "",
        "## Tensor cores",
        "",
        *tensor_lines(),
        "",
        *KINDS,
        "",
        "## Textures and surfaces",
        "",
        *texture_lines(),
        "",
        "## Contraction",
        "",
        *contraction_lines(),
    ]
    return "\n".join(lines) + "\n"
