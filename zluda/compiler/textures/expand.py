"""A texture or surface instruction as a call of the library, in PTX's own instructions.

Called functions take the handle of the texture (and of the sampler: the same where the mode is unified), then
coordinates and what else the form has, all in ``.param`` variables. Those are declared once a function, one
for each place and size, since a call's parameters are dead when it returns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import field, replace

from zluda.errors import UnsupportedError
from zluda.ptx.instructions import spell
from zluda.ptx.module import (
    Address,
    Function,
    Immediate,
    Indexed,
    Instruction,
    Operand,
    Pair,
    Register,
    Sink,
    Statement,
    Symbol,
    Variable,
    Vector,
)
from zluda.ptx.types import ScalarType
from zluda.records import dataclass

T = ScalarType
PREFIX = "__zluda_"


@dataclass(frozen=True, slots=True)
class Geometry:
    """A word of the ``geom`` slot: how many spatial coordinates, whether a layer comes first, of a cube.

    ``samples``: a sample's number comes before all. CUDA makes no array of several samples: a texel is its
    only one, number 0.
    """

    dimensions: int
    layered: bool = False
    cube: bool = False
    samples: bool = False


GEOMETRIES = {
    "1d": Geometry(1),
    "2d": Geometry(2),
    "3d": Geometry(3),
    "a1d": Geometry(1, layered=True),
    "a2d": Geometry(2, layered=True),
    "cube": Geometry(3, cube=True),
    "acube": Geometry(3, layered=True, cube=True),
    "2dms": Geometry(2, samples=True),
    "a2dms": Geometry(2, layered=True, samples=True),
}
_ZERO = Immediate(0)


def expand_textures(function: Function) -> Function:
    """The function with calls in place of its texture and surface instructions.

    Raises UnsupportedError, with the line, for forms without a meaning here.
    """
    return _Writer(function).run()


@dataclass
class _Writer:
    function: Function
    body: list[Statement] = field(default_factory=list)
    registers: dict[str, ScalarType] = field(default_factory=dict)
    variables: dict[str, Variable] = field(default_factory=dict)
    count: int = 0
    at: Instruction | None = None

    def run(self) -> Function:
        first: list[int] = []  # the new number of each old instruction
        for statement in self.function.body or ():
            if not isinstance(statement, Instruction):
                self.body.append(statement)
                continue
            first.append(self.count)
            self.at = statement
            expansion = EXPANSIONS.get(statement.opcode)
            if expansion is None:
                self._append(statement)
            else:
                expansion(self, statement)
        first.append(self.count)
        function = self.function
        return replace(
            function,
            body=self.body,
            registers={**function.registers, **self.registers},
            variables={**function.variables, **self.variables},
            debug_lines=tuple(replace(d, ordinal=first[d.ordinal]) for d in function.debug_lines),
            pragmas=tuple(replace(p, ordinal=first[p.ordinal]) for p in function.pragmas),
        )

    # --- instructions ----------------------------------------------------------------------------------

    def _append(self, instruction: Instruction) -> None:
        self.body.append(replace(instruction, ordinal=self.count))
        self.count += 1

    def put(
        self,
        opcode: str,
        slots: dict[str, str],
        types: tuple[ScalarType, ...],
        *operands: Operand,
        vector: int = 1,
        destinations: int = 1,
    ) -> None:
        """An instruction under the guard, and at the place, of the one that is expanded."""
        assert self.at is not None
        guard, location = self.at.guard, self.at.location
        made = Instruction(opcode, slots, types, operands, guard, location, 0, vector, destinations)
        self._append(made)

    def register(self, name: str, type: ScalarType) -> Register:
        """A register of this writer's own."""
        name = f"%zluda.{name}"
        self.registers[name] = type
        return Register(name, type)

    def variable(self, name: str, type: ScalarType, bytes: int = 0) -> Symbol:
        """A ``.param`` variable of this writer's own."""
        assert self.at is not None
        shape, align = ((bytes,), 16) if bytes else ((), type.bits // 8)
        made = Variable(f"{PREFIX}{name}", "param", type, align, shape, location=self.at.location)
        self.variables[made.name] = made
        return Symbol(made.name)

    def unsupported(self, what: str = "") -> UnsupportedError:
        assert self.at is not None
        kind = "kernel" if self.function.is_entry else "function"
        return UnsupportedError(
            what or spell(self.at), f"{kind} {self.function.name}, line {self.at.location.line}"
        )

    # --- calls -----------------------------------------------------------------------------------------

    def handle(self, operand: Operand, name: str) -> Operand:
        """The handle an object operand stands for: a register's value, a kernel parameter's, an address."""
        if isinstance(operand, Address):
            operand = operand.base
        if not isinstance(operand, Symbol):
            return operand
        register = self.register(name, T.B64)
        if any(p.name == operand.name for p in self.function.parameters):
            self.put("ld", {"space": "param"}, (T.B64,), register, Address(operand))
        else:
            self.put("mov", {}, (T.B64,), register, operand)
        return register

    def call(self, name: str, result: Symbol | None, arguments: Iterable[tuple[ScalarType, Operand]]) -> None:
        """Call ``__zluda_<name>``."""
        parameters: list[Operand] = []
        for i, (type, value) in enumerate(arguments):
            variable = self.variable(f"argument.{i}.{type.bits}", type)
            self.put("st", {"space": "param"}, (type,), Address(variable), value, destinations=0)
            parameters.append(variable)
        callee = Symbol(PREFIX + name)
        if result is None:
            self.put("call", {}, (), callee, Vector(tuple(parameters)), destinations=0)
        else:
            self.put("call", {}, (), Vector((result,)), callee, Vector(tuple(parameters)))

    def words(self, name: str, arguments: Iterable[tuple[ScalarType, Operand]], *results: Operand) -> None:
        """Call a function of four words' result, and write those that are wanted."""
        variable = self.variable("texel", T.B8, 16)
        self.call(name, variable, arguments)
        wanted = (*results, *[Sink()] * (4 - len(results)))
        self.put("ld", {"space": "param"}, (T.B32,), Vector(wanted), Address(variable), vector=4)

    def value(self, name: str, type: ScalarType, arguments: Iterable[tuple[ScalarType, Operand]]) -> Register:
        """Call a function of one result, of 32 or 64 bits; a register that holds it."""
        name_of_both = f"value.{type.bits}"
        variable, register = self.variable(name_of_both, type), self.register(name_of_both, type)
        self.call(name, variable, arguments)
        self.put("ld", {"space": "param"}, (type,), register, Address(variable))
        return register


Expansion = Callable[[_Writer, Instruction], None]


# --- operands --------------------------------------------------------------------------------------------


def _elements(operand: Operand) -> tuple[Operand, ...]:
    return operand.elements if isinstance(operand, Vector) else (operand,)


def _first(operand: Operand, count: int) -> list[Operand]:
    """The first elements of a vector that PTX pads."""
    return list(_elements(operand)[:count])


def _words(operands: Iterable[Operand]) -> list[tuple[ScalarType, Operand]]:
    return [(T.B32, o) for o in operands]


@dataclass(frozen=True, slots=True)
class _Place:
    """The bracketed operand: handles, layer (0 where there is none), spatial coordinates."""

    geometry: Geometry
    name: str
    objects: list[tuple[ScalarType, Operand]]
    layer: Operand
    coordinates: list[Operand]
    sample: Operand = _ZERO


def _place(w: _Writer, i: Instruction, operand: Operand) -> _Place:
    name = i.slots["geom"]
    geometry = GEOMETRIES[name]
    assert isinstance(operand, Indexed)
    objects = [w.handle(o, f"object.{n}") for n, o in enumerate(operand.objects)]
    if i.opcode in ("tex", "tld4") and len(objects) == 1:
        objects *= 2
    elements = list(_elements(operand.coordinates))
    sample = elements.pop(0) if geometry.samples else _ZERO
    layer = elements.pop(0) if geometry.layered else _ZERO
    if len(elements) < geometry.dimensions:
        raise w.unsupported(f"{spell(i)} with {len(_elements(operand.coordinates))} coordinates")
    spatial = elements[: geometry.dimensions]
    return _Place(geometry, name.removesuffix("ms"), [(T.B64, o) for o in objects], layer, spatial, sample)


# --- tex, tld4 -------------------------------------------------------------------------------------------


def _offsets(rest: list[Operand], geometry: Geometry) -> list[Operand]:
    """What may follow: a vector of offsets, then a depth to compare with.

    CUDA's samplers have no comparison: an H200 gives the same whatever the depth.
    """
    offsets: list[Operand] = [_ZERO] * 3
    for operand in rest:
        if isinstance(operand, Vector):
            offsets[: geometry.dimensions] = _first(operand, geometry.dimensions)
    return offsets


def _texel_arguments(place: _Place, *rest: tuple[ScalarType, Operand]) -> list[tuple[ScalarType, Operand]]:
    layer = [place.layer] if place.geometry.layered else []
    return [*place.objects, *_words(layer), *_words(place.coordinates), *rest]


def _results(i: Instruction) -> tuple[list[Operand], Operand | None]:
    """Destination registers of a fetch, and the residence predicate where there is one."""
    target = i.operands[0]
    resident = target.second if isinstance(target, Pair) else None
    if isinstance(target, Pair):
        target = target.first
    return list(_elements(target)), resident


def _tex(w: _Writer, i: Instruction) -> None:
    """``tex``: coordinates of floats go through the sampler, integers name a texel."""
    place = _place(w, i, i.operands[1])
    geometry = place.geometry
    rest = list(i.operands[2:])
    whole = i.types[-1] is T.S32 and not i.has("grad")  # ptxas takes those bits for a float's
    lod: Operand = _ZERO
    gradients: list[Operand] = []
    if i.has("level"):
        lod = rest.pop(0)
    elif i.has("grad"):
        gradients = _gradients(w, geometry, rest.pop(0), rest.pop(0))
        if geometry.dimensions == 3 and not geometry.cube:
            lod, gradients = _gradient_lod(w, place, gradients), []
    chosen = Immediate(int(i.has("level") or i.has("grad")))
    offsets = [] if geometry.cube else _words(_offsets(rest, geometry)[: geometry.dimensions])
    if geometry.samples:
        lod = place.sample  # and so zeros for any but the first, as for a level that is not there
    if gradients:
        _fetch(w, i, f"grad_{place.name}", _texel_arguments(place, *_words(gradients), *offsets))
        return
    name = f"texi_{place.name}" if whole else f"tex_{place.name}"
    _fetch(w, i, name, _texel_arguments(place, *_words([lod, chosen]), *offsets))


def _gradients(w: _Writer, geometry: Geometry, dx: Operand, dy: Operand) -> list[Operand]:
    n = geometry.dimensions
    if min(len(_elements(dx)), len(_elements(dy))) < n:
        raise w.unsupported(f"gradients of less than {n} elements")
    return [*_first(dx, n), *_first(dy, n)]


def _gradient_lod(w: _Writer, place: _Place, gradients: list[Operand]) -> Register:
    """The level of detail of a footprint in three dimensions, which is never anisotropic."""
    return w.value("lod_3d", T.B32, [*place.objects, *_words([*place.coordinates, *gradients])])


def _fetch(w: _Writer, i: Instruction, name: str, arguments: list[tuple[ScalarType, Operand]]) -> None:
    results, resident = _results(i)
    type = i.type
    if type.spelling in ("f16", "f16x2"):
        _fetch_halves(w, type, name, arguments, results)
    else:
        w.words(name, arguments, *results)
    if resident is not None and not isinstance(resident, Sink):
        w.put("setp", {"cmp": "eq"}, (T.B32,), resident, _ZERO, _ZERO)


def _fetch_halves(
    w: _Writer,
    type: ScalarType,
    name: str,
    arguments: list[tuple[ScalarType, Operand]],
    results: list[Operand],
) -> None:
    """Four words rounded to halves: one a register, or two packed in each."""
    words = [w.register(f"texel.{n}", T.F32) for n in range(4)]
    w.words(name, arguments, *words)
    if type.spelling == "f16":
        for target, word in zip(results, words, strict=False):
            w.put("cvt", {"rnd": "rn"}, (T.F16, T.F32), target, word)
        return
    for n, target in enumerate(results):
        w.put("cvt", {"rnd": "rn"}, (T.F16X2, T.F32), target, words[2 * n + 1], words[2 * n])


def _tld4(w: _Writer, i: Instruction) -> None:
    """``tld4``: one component of the four texels that a linear filter would blend."""
    place = _place(w, i, i.operands[1])
    component = Immediate("rgba".index(i.slots["component"]))
    offsets = [] if place.geometry.cube else _words(_offsets(list(i.operands[2:]), place.geometry)[:2])
    _fetch(w, i, f"tld4_{place.name}", _texel_arguments(place, (T.B32, component), *offsets))


# --- surfaces --------------------------------------------------------------------------------------------

_CLAMPS = {"trap": 0, "clamp": 1, "zero": 2}


def _clamp(i: Instruction) -> tuple[ScalarType, Operand]:
    return T.B32, Immediate(_CLAMPS[i.slots["clamp"]])


def _address(w: _Writer, i: Instruction, place: _Place, bytes: int, *, samples: bool = False) -> Address:
    """Where an access of so many bytes goes. Out of range, with ``.zero``, that is memory of zeros for loads
    and memory nobody reads for stores."""
    kind = Immediate(0 if i.opcode == "suld" else 1)
    size = Immediate(0 if samples else bytes)  # 0: x counts texels
    arguments = _texel_arguments(place, (T.B32, size), _clamp(i), (T.B32, kind))
    return Address(w.value(f"surface_{place.name}", T.B64, arguments))


def _suld(w: _Writer, i: Instruction) -> None:
    place = _place(w, i, i.operands[1])
    at = _address(w, i, place, i.vector * i.type.bits // 8)
    w.put("ld", {"space": "global"}, (i.type,), i.operands[0], at, vector=i.vector)


def _sust(w: _Writer, i: Instruction) -> None:
    place = _place(w, i, i.operands[0])
    if i.has("p"):
        values = list(_elements(i.operands[1]))
        padded = [*values, *[_ZERO] * (4 - len(values))]
        w.call(f"sust_{place.name}", None, _texel_arguments(place, _clamp(i), *_words(padded)))
        return
    at = _address(w, i, place, i.vector * i.type.bits // 8)
    w.put("st", {"space": "global"}, (i.type,), at, i.operands[1], vector=i.vector, destinations=0)


def _sured(w: _Writer, i: Instruction) -> None:
    place = _place(w, i, i.operands[0])
    type = _REDUCED.get((i.type, i.slots["op"]), i.type)
    at = _address(w, i, place, type.bits // 8, samples=i.has("p"))
    w.put("red", {"space": "global", "op": i.slots["op"]}, (type,), at, i.operands[1], destinations=0)


# ``.b32`` of the forms that name no sign is unsigned.
_REDUCED = {
    **{(T.B32, op): T.U32 for op in ("add", "min", "max")},
    **{(T.B64, op): T.U64 for op in ("add", "min", "max")},
}


# --- queries ---------------------------------------------------------------------------------------------

QUERIES = (
    *("width", "height", "depth", "array_size", "num_mipmap_levels", "num_samples"),
    *("channel_data_type", "channel_order", "normalized_coords", "force_unnormalized_coords"),
    *("filter_mode", "addr_mode_0", "addr_mode_1", "addr_mode_2", "memory_layout"),
)
"""What ``txq`` and ``suq`` can be asked, in the order of ``textures.cu``'s numbers. All but the first three
NVIDIA's driver refuses to load, though ptxas takes them; they are as PTX ISA 5.3 and 9.7.10.4 say."""


def _query(w: _Writer, i: Instruction) -> None:
    handle = w.handle(i.operands[1], "object.0")
    level = i.operands[2] if i.has("level") else _ZERO
    number = Immediate(QUERIES.index(i.slots["query"]))
    of_surface = Immediate(int(i.opcode == "suq"))
    answer = w.value("query", T.B32, [(T.B64, handle), *_words([number, level, of_surface])])
    w.put("mov", {}, (T.B32,), i.operands[0], answer)


def _is_type(w: _Writer, i: Instruction) -> None:
    """``istypep`` (PTX ISA 9.7.10.5)."""
    handle = w.handle(i.operands[1], "object.0")
    kind = Immediate(("texref", "surfref", "samplerref").index(i.type.spelling) + 1)
    answer = w.value("istypep", T.B32, [(T.B64, handle), (T.B32, kind)])
    w.put("setp", {"cmp": "ne"}, (T.B32,), i.operands[0], answer, _ZERO)


EXPANSIONS: dict[str, Expansion] = {
    "tex": _tex,
    "tld4": _tld4,
    "suld": _suld,
    "sust": _sust,
    "sured": _sured,
    "txq": _query,
    "suq": _query,
    "istypep": _is_type,
}
"""Opcode to what writes it out."""
