"""Break one place of ``zluda/compiler/lower``, and see whether the golden results notice.

    python tests/conformance/mutants.py --seed 1 --count 44 --jobs 2

In each mutant one operator, constant, name or condition is another, which a process of its own reads in place
of the source (``tests/support/seeding``). That process judges forms on the CPU device until one does not
hold, those first that the file is for. Printed is how each was noticed, or that it was not; ``--then`` names
tests that mutants which no form noticed have to face. Status 1 if any was not noticed by either.
A mutant that is not noticed may mean the same as the source, or show what no form tries.
"""

from __future__ import annotations

import argparse
import ast
import copy
import json
import random
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LOWER = ROOT / "zluda" / "compiler" / "lower"
sys.path.insert(0, str(ROOT / "tests" / "support"))

from seeding import Change, environment  # noqa: E402 - found on the path above

_PAIRS = """
    add>sub sub>add and_>or_ or_>xor xor>or_ shl>lshr lshr>ashr ashr>lshr zext>sext
    sext>zext fadd>fsub fsub>fadd smin>smax smax>smin umin>umax umax>umin min>max max>min ult>ule
    ule>ult ugt>uge uge>ugt slt>sle sle>slt sgt>sge sge>sgt eq>ne ne>eq olt>ole ogt>oge oeq>une
    une>oeq ctlz>cttz cttz>ctlz floor>ceil ceil>floor rint>trunc fptosi>fptoui sitofp>uitofp
    uitofp>sitofp lo>hi hi>lo
"""
EXCHANGED = dict(pair.split(">") for pair in _PAIRS.split())
"""Names of the builder's operations and of LLVM's predicates and functions, and what is written for them."""
COMPARED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
}
COMPUTED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.LShift: ast.RShift,
    ast.BitOr: ast.BitAnd,
    ast.FloorDiv: ast.Mult,
}
FIRST = {
    "integer": "integer|various",
    "logic": "integer|various",
    "video": "video",
    "warp": "warp",
    "convert": "convert",
    "small_floats": "convert",
    "formats": "convert",
    "compare": "compare",
    "floating": "floating",
    "mufu": "floating",
    "rounding": "floating|convert",
    "atomics": "atomics",
    "read_modify_write": "atomics",
    "memory": "memory",
    "asynchronous": "asynchronous",
    "mbarrier": "asynchronous",
    "cluster": "clusters",
}
"""File → the families (a regular expression) of forms that are judged first; others: ``tensor``."""


@dataclass(frozen=True)
class Mutant:
    """``change`` of the file ``name``.py at ``line``, in words ``what``."""

    name: str
    line: int
    what: str
    change: Change


class _Mutations(ast.NodeTransformer):
    """Counts the places that could be another; exchanges that of number ``chosen``."""

    def __init__(self, chosen: int = -1) -> None:
        self.chosen, self.count, self.line, self.what = chosen, 0, 0, ""

    def _here(self, node: ast.AST, what: str) -> bool:
        self.count += 1
        if self.count - 1 != self.chosen:
            return False
        self.line, self.what = getattr(node, "lineno", 0), what
        return True

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        value = node.value
        if isinstance(value, str) and value in EXCHANGED:
            if self._here(node, f"{value!r} is {EXCHANGED[value]!r}"):
                return ast.Constant(EXCHANGED[value])
        elif isinstance(value, bool):
            if self._here(node, f"{value} is {not value}"):
                return ast.Constant(not value)
        elif isinstance(value, int) and self._here(node, f"{value} is {value + 1}"):
            return ast.Constant(value + 1)
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        self.generic_visit(node)
        builder = isinstance(node.value, ast.Name) and node.value.id == "b"
        if builder and node.attr in EXCHANGED and self._here(node, f"{node.attr} is {EXCHANGED[node.attr]}"):
            return ast.Attribute(node.value, EXCHANGED[node.attr], node.ctx)
        return node

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        self.generic_visit(node)
        other = COMPARED.get(type(node.ops[0]))
        if other is not None and self._here(node, f"{type(node.ops[0]).__name__} is {other.__name__}"):
            return ast.Compare(node.left, [other(), *node.ops[1:]], node.comparators)
        return node

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        other = COMPUTED.get(type(node.op))
        if other is not None and self._here(node, f"{type(node.op).__name__} is {other.__name__}"):
            return ast.BinOp(node.left, other(), node.right)
        return node

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        self.generic_visit(node)
        if self._here(node, "the other choice"):
            return ast.IfExp(node.test, node.orelse, node.body)
        return node

    def visit_If(self, node: ast.If) -> ast.AST:
        self.generic_visit(node)
        if not any(isinstance(x, ast.Raise) for x in node.body) and self._here(
            node, "the condition is turned"
        ):
            return ast.If(ast.UnaryOp(ast.Not(), node.test), node.body, node.orelse)
        return node


def _pieces(path: Path) -> Iterator[tuple[str, ast.stmt]]:
    """The functions and tables of a file, and their text as it stands."""
    text = path.read_text()
    for node in ast.parse(text).body:
        whole = isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.Assign, ast.AnnAssign))
        segment = ast.get_source_segment(text, node) if whole else None
        if segment is not None and text.count(segment) == 1:
            yield segment, node


def mutants(seed: int, count: int, files: str) -> list[Mutant]:
    """As many as are asked for, drawn from all places alike."""
    places = []
    for path in sorted(LOWER.glob("*.py")):
        for segment, node in _pieces(path) if re.search(files, path.stem) else ():
            counting = _Mutations()
            counting.visit(copy.deepcopy(node))
            places += [(path.stem, segment, node, n) for n in range(counting.count)]
    chosen = random.Random(seed).sample(places, min(count, len(places)))
    return [_mutant(*place) for place in chosen]


def _mutant(name: str, segment: str, node: ast.stmt, number: int) -> Mutant:
    changing = _Mutations(number)
    changed = copy.deepcopy(node)
    decorators = changed.decorator_list if isinstance(changed, (ast.FunctionDef, ast.ClassDef)) else []
    made = changing.visit(changed)
    if decorators:  # they are not in the segment, and stay where they are
        made.decorator_list = []
    text = ast.unparse(ast.fix_missing_locations(made))
    return Mutant(name, changing.line, changing.what, Change(f"zluda.compiler.lower.{name}", segment, text))


def judged(name: str) -> str:
    """In the mutant's own process: what the first form says that does not hold; nothing where all hold."""
    import golden_file
    import judge
    from isa_forms import FAMILIES, all_forms
    from isa_forms.kernels import groups

    import zluda

    golden = golden_file.load()[0]
    first = re.compile(FIRST.get(name, "tensor|sparse_wgmma"))
    early = {form.name for family, made in FAMILIES.items() if first.search(family) for form in made.forms()}
    forms = list(all_forms())
    parts = [[f for f in forms if f.name in early], [f for f in forms if f.name not in early]]
    with zluda.open_device("cpu", numerics="nvidia") as device:
        for part in parts:
            for group in groups(part):
                for outcome in judge.judge(device, group, golden):
                    if outcome.kind != "identical":
                        return f"{outcome.form}: {outcome.kind}, {outcome.detail}"
    return ""


def noticed(mutant: Mutant, then: list[str]) -> str:
    """How a mutant was noticed; nothing where it was not."""
    seeded = environment([mutant.change])
    command = [sys.executable, __file__, "--judged", mutant.name]
    try:
        done = subprocess.run(command, env=seeded, capture_output=True, text=True, timeout=1800, check=False)
    except subprocess.TimeoutExpired:
        return "no end"
    if done.returncode:
        return f"status {done.returncode}: {(done.stderr.strip().splitlines() or [''])[-1]}"
    found: str = json.loads(done.stdout.splitlines()[-1])
    if found or not then:
        return found
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-x",
        "-q",
        "-p",
        "no:cacheprovider",
        "-m",
        "not nightly",
        *then,
    ]
    tested = subprocess.run(command, env=seeded, cwd=ROOT, capture_output=True, text=True, check=False)
    lines = [line for line in tested.stdout.splitlines() if line.startswith("FAILED")]
    return (lines or [f"tests: status {tested.returncode}"])[0] if tested.returncode else ""


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=44)
    parser.add_argument("--files", default="", metavar="REGEX", help="of names in zluda/compiler/lower")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--then", nargs="*", default=[], metavar="TESTS")
    parser.add_argument("--judged", metavar="NAME", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.judged:
        print(json.dumps(judged(options.judged)))
        return 0
    drawn = mutants(options.seed, options.count, options.files)

    def ask(mutant: Mutant) -> bool:
        begun = time.monotonic()
        how = noticed(mutant, options.then)
        place = f"{mutant.name}.py:{mutant.line}: {mutant.what}"
        print(
            f"{'noticed' if how else 'MISSED '} {place} ({time.monotonic() - begun:.0f} s) {how[:160]}",
            flush=True,
        )
        return bool(how)

    with ThreadPoolExecutor(options.jobs) as pool:
        count = sum(pool.map(ask, drawn))
    print(f"{count} of {len(drawn)} noticed")
    return int(count < len(drawn))


if __name__ == "__main__":
    sys.exit(main())
