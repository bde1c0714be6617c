"""``.approx`` and ``.full`` forms (PTX ISA 9.7.3, 9.7.4): which instruction it is, and who computes it.

How one is computed is the module's to say (:attr:`zluda.compiler.ir.Module.approximate`): bit for bit as
NVIDIA's units (:mod:`zluda.compiler.lower.nvidia`, the default), by the machine's own instructions
(``compiler/amd/approximate.py``, ``compiler/cpu/approximate.py``), or moved inside its bound
(``compiler/cpu/envelope.py``).

What is computed is what the unit gives at run time. A constant argument, which ptxas folds to the correctly
rounded value instead, arrives as a :class:`~zluda.compiler.ir.Value` with ``bits``: folding belongs here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from zluda.compiler.ir import Approximate, Builder, Value
from zluda.compiler.lower import floating
from zluda.compiler.lower.formats import ELEMENT_OF_PACKED, by_elements, load_float
from zluda.compiler.lower.lanewise import Result, as_bits, lanewise, unsupported
from zluda.errors import UnsupportedError
from zluda.ptx.module import Instruction
from zluda.ptx.types import ScalarType

if TYPE_CHECKING:
    from zluda.compiler.unit import Unit

_ALWAYS = ("ex2", "tanh", "rsqrt", "lg2", "sin", "cos")
_SOMETIMES = ("rcp", "sqrt", "div")


def approximation(inst: Instruction) -> str | None:
    """The name that an approximate instruction has in :data:`~zluda.numerics.bounds.BOUNDS`, by its element
    type (``ex2.approx.f16`` for ``ex2.approx.f16x2``); None for an exact instruction.
    """
    if inst.opcode not in _ALWAYS and not (
        inst.opcode in _SOMETIMES and (inst.has("approx") or inst.has("full"))
    ):
        return None
    element = ELEMENT_OF_PACKED.get(inst.type, inst.type)
    kind, ftz = ("full" if inst.has("full") else "approx"), (".ftz" if inst.has("ftz") else "")
    return f"{inst.opcode}.{kind}{ftz}.{element.spelling}"


def choose_numerics(unit: Unit, kinds: Mapping[str, Callable[[Unit], Approximate]]) -> None:
    """Have the unit's module compute approximate instructions as ``unit.numerics`` asks; ``kinds`` are those
    that the target has beside ``"nvidia"``. Raises UnsupportedError.
    """
    if unit.numerics == "nvidia":
        return
    if unit.numerics not in kinds:
        raise UnsupportedError(f"numerics {unit.numerics!r}", f"kernel {unit.kernel.name}")
    unit.ir.approximate = kinds[unit.numerics](unit)


def approximations(unit: Unit) -> list[str]:
    """The approximate instructions that a kernel can come to, by their names in ``BOUNDS``, each once."""
    functions = (unit.kernel, *unit.functions.values())
    found = (approximation(i) for f in functions for i in f.instructions)
    return sorted({name for name in found if name is not None})


@lanewise(*_ALWAYS)
def approximate(b: Builder, inst: Instruction, operands: list[Value]) -> Result:
    """An approximate instruction, computed as the module has it."""
    from zluda.numerics.bounds import BOUNDS

    name = approximation(inst)
    if name not in BOUNDS:
        raise unsupported(inst)
    compute = b.module.approximate or _nvidia
    if inst.type is ScalarType.F64:
        return compute(b, name, [as_bits(b, operands[0], 64)])

    def element(type: ScalarType, values: list[Value]) -> Value:
        return compute(b, name, [load_float(b, v, type) for v in values])

    return by_elements(b, inst.type, operands, element)


def _nvidia(b: Builder, name: str, xs: list[Value]) -> Value:
    from zluda.compiler.lower import nvidia  # where a module has other means it needs none of NVIDIA's

    return nvidia.compute(b, name, xs)


def _or_exact(
    exact: Callable[[Builder, Instruction, list[Value]], Result],
) -> Callable[[Builder, Instruction, list[Value]], Result]:
    def lower(b: Builder, inst: Instruction, operands: list[Value]) -> Result:
        return (approximate if approximation(inst) else exact)(b, inst, operands)

    return lower


lanewise("rcp")(_or_exact(floating.reciprocal))
lanewise("sqrt")(_or_exact(floating.square_root))
divide = _or_exact(floating.divide)
"""``div`` of floating types."""
