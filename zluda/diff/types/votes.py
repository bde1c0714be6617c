"""What a kernel's accesses say of the buffers behind its parameters and of its module's variables."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from zluda.diff.types.addresses import LOADED, OF_PARAMETER, Addresses
from zluda.diff.types.flow import Flow, Tag
from zluda.diff.types.layout import BYTES, POINTER, Confidence, Vote, is_float
from zluda.diff.types.places import Origin, Place, Term
from zluda.diff.types.program import ATOMICS, MEMORY_OPCODES, Program, leaves
from zluda.diff.types.tags import ELEMENT_OF
from zluda.ptx import Module
from zluda.ptx.module import Address, Function, Indexed, Instruction, Operand, Register
from zluda.ptx.types import ScalarType

_SHARED_COPIES = frozenset(("ldmatrix", "stmatrix"))
_OPAQUE = "&*"  # origins that are no buffer of a launch's own: parameters themselves, loaded words


class Evidence(NamedTuple):
    """``votes`` and products with parameters (``terms``, see :class:`~.places.Term`) of each origin."""

    votes: Mapping[Origin, list[Vote]]
    terms: Mapping[Origin, frozenset[Term]]


class _Access(NamedTuple):
    """An access of ``lanes``: (bytes from the address, register or None, bytes of it)."""

    place: Place
    type: ScalarType
    lanes: tuple[tuple[int, str | None, int], ...]
    size: int
    atomic: bool
    stores: bool


def evidence(kernel: Function, module: Module | None = None) -> Evidence:
    """What can be read off a kernel and what it calls."""
    program = Program.of(kernel, module)
    return _Reading(program).evidence()


class _Reading:
    def __init__(self, program: Program) -> None:
        self._program = program
        self._addresses, self._flow = Addresses(program), Flow(program)
        # (variable, whether stored) → elements; what is untyped and stored, or loaded
        self._shared: dict[tuple[str, bool], Counter[tuple[str, int]]] = defaultdict(Counter)
        self._carried: dict[tuple[str, int], set[tuple[str, bool]]] = defaultdict(set)
        self._terms: dict[Origin, frozenset[Term]] = defaultdict(frozenset)
        self._votes: dict[Origin, list[Vote]] = defaultdict(list)

    def evidence(self) -> Evidence:
        accesses = list(self._accesses())
        self._mark_pointers(accesses)
        ours: list[_Access] = []
        shared: list[_Access] = []
        for access in accesses:
            (shared if self._is_shared(access.place) else ours).append(access)
        for access in shared:
            self._look_at_shared(access)
        self._matrices_in_shared_memory()
        for access in ours:
            self._vote(access)
        for place, bytes_of, to in self._copies():
            self._vote_for_copy(place, bytes_of, to)
        return Evidence(dict(self._votes), dict(self._terms))

    # --- accesses -----------------------------------------------------------------------------------------

    def _accesses(self) -> Iterator[_Access]:
        for where, inst in self._program.instructions():
            fragment = inst.opcode == "wmma" and (inst.has("load") or inst.has("store"))
            if inst.opcode not in MEMORY_OPCODES and inst.opcode not in _SHARED_COPIES and not fragment:
                continue
            if inst.slots.get("space", "").startswith(("param", "local")):
                continue
            address = next((o for o in inst.operands if isinstance(o, Address)), None)
            if address is not None:
                yield self._access(where, inst, address, by_element=fragment)

    def _access(self, where: str, inst: Instruction, address: Address, *, by_element: bool) -> _Access:
        values = [one for one in inst.operands if not isinstance(one, Address)]
        values = values[:1] if inst.opcode not in ATOMICS else values
        in_rows = by_element or inst.opcode in _SHARED_COPIES
        lanes: list[tuple[int, str | None, int]] = []
        size = max(inst.type.bits // 8, 1)
        for operand in values:
            for index, one in enumerate(_each(operand)):
                at = index * size if inst.opcode not in ATOMICS or len(_list(operand)) > 1 else 0
                width = one.type.bits // 8 if in_rows and isinstance(one, Register) else size
                name = where + one.name if isinstance(one, Register) and not one.special else None
                lanes.append((at, name, width))
        place = self._addresses.of(where, address)
        stores = inst.opcode in ("st", "stmatrix") or inst.has("store")
        if in_rows:  # rows at strides of the program's own
            place, lanes = place._replace(step=size, rest=0), [(0, name, width) for _, name, width in lanes]
        whole = size * max(inst.vector, 1)
        if place.step % whole and not place.origins & _exact(place):
            place = place._replace(step=whole, rest=0)
        return _Access(
            place, inst.type, tuple(lanes or [(0, None, size)]), size, inst.opcode in ATOMICS, stores
        )

    def _mark_pointers(self, accesses: list[_Access]) -> None:
        """Loaded words that are used as addresses are pointers; so are addresses that are stored."""
        accessed = {origin for access in accesses for origin in access.place.origins}
        for origin in accessed:
            if origin.name.startswith(LOADED):
                self._flow.tag(origin.name[len(LOADED) :], 0, POINTER, 8)
        plain = {origin for origin in accessed if not origin.name.startswith(OF_PARAMETER)}
        for where, inst in self._program.instructions():
            if inst.opcode == "st" and inst.type.bits == 64:
                for one in leaves(inst.operands[1:]):
                    if isinstance(one, Register) and self._addresses.place(where, one).origins & plain:
                        self._flow.tag(where + one.name, 0, POINTER, 8)

    # --- shared memory ------------------------------------------------------------------------------------

    def _is_shared(self, place: Place) -> bool:
        return any(self._program.space(one.name) == "shared" for one in place.origins)

    def _shared_names(self, place: Place) -> list[str]:
        return [one.name for one in place.origins if self._program.space(one.name) == "shared"]

    def _look_at_shared(self, access: _Access) -> None:
        """Note what a shared variable is loaded or stored as, and which registers only carry it."""
        for name in self._shared_names(access.place):
            for _, element, size, confidence in self._found(access):
                if confidence is Confidence.CERTAIN:
                    self._shared[name, access.stores][element, size] += 1
            for _, register, _ in access.lanes:
                if register is not None:
                    self._carried[self._flow.group(register)].add((name, access.stores))

    def _matrices_in_shared_memory(self) -> None:
        """``wgmma`` reads A and B there, by descriptors made of addresses."""
        everywhere = [name for name, one in self._program.variables.items() if one.space == "shared"]
        for _, inst in self._program.instructions():
            if inst.opcode == "wgmma" and len(inst.types) > 2:
                for type in inst.types[1:3]:
                    element = "f32" if type is ScalarType.TF32 else type.spelling
                    if type.bits >= 8:
                        for name in everywhere:
                            self._shared[name, False][element, type.bits // 8] += 1

    def _in_shared(self, carried: Iterable[tuple[str, bool]], size: int) -> Iterator[tuple[str, int]]:
        """What carried values are, of elements that fill ``size`` bytes: those stored are what loads from the
        variable mostly take them for, those loaded what stores made them; else what the other side says.
        """
        for other_side in (True, False):
            counts: Counter[tuple[str, int]] = Counter()
            for variable, stored in carried:
                counts += self._shared.get((variable, stored is not other_side), Counter())
            fitting = {key: count for key, count in counts.items() if size % key[1] == 0}
            if fitting:
                yield max(fitting, key=lambda key: (fitting[key], key))
                return

    # --- votes --------------------------------------------------------------------------------------------

    def _vote(self, access: _Access) -> None:
        found = list(self._found(access))
        for origin in access.place.origins:
            if origin.name[0] in _OPAQUE or self._program.space(origin.name) == "local":
                continue
            self._terms[origin] |= access.place.terms
            for at, element, size, confidence in found:
                step, rest = access.place.step, access.place.rest + at
                rest = rest % step if step else rest
                self._votes[origin].append(Vote(step, rest, element, size, confidence))

    def _found(self, access: _Access) -> Iterator[tuple[int, str, int, Confidence]]:
        """(bytes from the address, element, its bytes, how sure) of each lane."""
        own = access.type
        for at, name, width in access.lanes:
            if own.bits < 8:
                yield at, BYTES, 1, Confidence.CERTAIN
                continue
            if own.kind == "f" or (access.atomic and own.kind in "us"):
                element = ELEMENT_OF.get(own.spelling, own.spelling).replace("tf32", "f32")
                size = _bytes_of(element, access.size)
                yield from ((at + i, element, size, Confidence.CERTAIN) for i in range(0, access.size, size))
                continue
            seen = [] if name is None else list(self._seen(name, access.size, width, own))
            if not seen and name is not None:
                seen = [
                    (i, element, size, Confidence.LIKELY)
                    for element, size in self._in_shared(self._carried[self._flow.group(name)], access.size)
                    for i in range(0, access.size, size)
                ]
            weak = own.spelling if own.kind != "b" else f"u{min(own.bits, 64)}"
            yield from ((at + i, element, size, sure) for i, element, size, sure in seen)
            if not seen:
                size = min(access.size, 8)
                yield from ((at + i, weak, size, Confidence.GUESS) for i in range(0, access.size, size))

    def _seen(
        self, name: str, size: int, width: int, own: ScalarType
    ) -> Iterator[tuple[int, str, int, Confidence]]:
        """The elements that the bytes of a register are used as: of its own width, or of parts of it."""
        whole = max(size, width)
        tags = [self._flow.tags(name, byte) for byte in range(whole)]
        for part in _PARTS_OF.get(whole, (whole,)):
            found = [(at, _elements(tags[at : at + part], part)) for at in range(0, whole, part)]
            common = {one for _, elements in found for one in elements}
            integers = not any(map(is_float, common)) and part < whole
            if not common or (integers and not all(elements for _, elements in found)):
                continue  # low bytes of an integer are one too
            for at, elements in found:
                for element in sorted(elements or common):  # a half that nobody looks at is as the other
                    yield at % size, element, part, Confidence.CERTAIN
            return
        wider = {tag.element for tag in tags[0] if tag.byte == 0 and tag.element[0] in "us"}
        if wider and own.kind in "us":
            yield 0, own.spelling, size, Confidence.CERTAIN

    # --- copies by the hardware ---------------------------------------------------------------------------

    def _copies(self) -> Iterator[tuple[Place, int, Place]]:
        """(where in global memory, bytes at a time, where in shared memory) of ``cp.async`` and its bulk
        kind.
        """
        for where, inst in self._program.instructions():
            addresses = [one for one in inst.operands if isinstance(one, Address)]
            tensor = any(isinstance(one, Indexed) for one in inst.operands)
            if inst.opcode != "cp" or tensor or len(addresses) < 2:
                continue
            sides = [self._addresses.of(where, one) for one in addresses[:2]]
            far, near = sides if inst.slots.get("dst") == "global" else sides[::-1]
            yield far, 16, near

    def _vote_for_copy(self, place: Place, size: int, near: Place) -> None:
        for origin in place.origins:
            if origin.name[0] in _OPAQUE:
                continue
            for element, width in self._in_shared([(name, True) for name in self._shared_names(near)], size):
                self._votes[origin].append(Vote(width, 0, element, width, Confidence.LIKELY))
            if not self._votes[origin]:
                self._votes[origin].append(Vote(4, 0, "u32", 4, Confidence.GUESS))


_PARTS_OF = {16: (8, 4, 2, 1), 8: (8, 4, 2, 1), 4: (4, 2, 1), 2: (2, 1), 1: (1,)}


def _elements(tags: list[frozenset[Tag]], size: int) -> set[str]:
    """The elements of ``size`` bytes that begin here.

    Two bytes that are an f32's upper two are a bf16, as it is widened and narrowed.
    """
    found = {tag.element for i, at in enumerate(tags) for tag in at if _begins(tag, i, size)}
    upper = size == 2 and Tag("f32", 2) in tags[0] and Tag("f32", 3) in tags[1]
    if upper and not any(is_float(element) for element in found):
        return {"bf16"}
    if size == 4 and Tag("f32", 2) in tags[0]:
        return found - {"f32"}
    return found


def _begins(tag: Tag, byte: int, size: int) -> bool:
    return tag.byte == byte and _bytes_of(tag.element, size) == size


def _bytes_of(element: str, default: int) -> int:
    """Bytes of an element; of less than a byte, one."""
    if element == POINTER:
        return 8
    bits = "".join(c for c in element.lstrip("bfsu") if c.isdigit()) if element[0] in "bfsu" else ""
    if element.startswith(("e2", "e3", "e4", "e5", "ue8")):
        return 1
    return int(bits) // 8 if bits else default


def _each(operand: Operand) -> Iterator[Operand]:
    return leaves((operand,))


def _list(operand: Operand) -> list[Operand]:
    return list(leaves((operand,)))


def _exact(place: Place) -> frozenset[Origin]:
    return place.origins if place.step == 0 else frozenset()
