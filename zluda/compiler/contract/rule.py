"""ptxas's rule: which products go into which sums.

A product may be fused only if every use of it can be: it must not have to exist by itself. First, products
with a single use go into the first sum that reads them; then each sum left takes a product all of whose
remaining uses are sums, that with fewer uses first. A sum that took one operand in uses the other as an
addend, so a product there has to exist. Found by assembling random kernels with ptxas 13.0 and reading the
machine code; sm_75 to sm_120 agree.
"""

from __future__ import annotations

from dataclasses import field, replace

from zluda.compiler.contract import constants
from zluda.compiler.contract.blocks import find_blocks, merge
from zluda.compiler.contract.kinds import (
    SINGLE_USE_FIRST,
    arithmetic,
    has_effect,
    is_folded,
    is_quotient,
    is_sum,
    match,
)
from zluda.compiler.contract.unrolling import unroll
from zluda.compiler.contract.values import Value, Values
from zluda.ptx.module import Function, Register
from zluda.ptx.types import ScalarType
from zluda.records import dataclass

T = ScalarType
_POWERS = {2.0: 1, 4.0: 2, 8.0: 3, 0.5: -1, 0.25: -2, 0.125: -3}
_BLOCKING = -1


@dataclass(frozen=True, slots=True)
class Fusion:
    """A sum takes in ``product``, its operand ``operand``; ``negative``: the product's sign is turned."""

    operand: int
    product: int
    negative: bool


@dataclass(frozen=True, slots=True)
class Scaling:
    """A product by 2^``power`` takes in ``product``, its operand ``operand``: all is rounded once."""

    operand: int
    product: int
    power: int
    negative: bool


@dataclass(slots=True)
class Outcome:
    """What is to be done with a function, by the index of the instruction that changes.

    ``function`` is the one that was given, or that with loops unrolled where their rounds differ.
    """

    function: Function
    values: Values
    fusions: dict[int, Fusion] = field(default_factory=dict)
    scalings: dict[int, Scaling] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Changes:
    """What becomes of an instruction; ``folded`` is the constant it is, ``divisor`` what it divides by."""

    fusion: Fusion | None
    scaling: Scaling | None
    folded: int | None
    divisor: float | None


def decide(function: Function, *, everything: bool = False) -> Outcome:
    """Apply the rule to a function; ``everything``: fuse whatever can be fused instead."""
    given = rule = _Rule(function)
    if everything:
        rule.fuse_all()
        return rule.outcome
    origins: list[int] | None = None
    while (unrolled := unroll(rule.function, rule.values, rule.live)) is not None:
        copied = unrolled.origins
        origins = copied if origins is None else [origins[i] if i >= 0 else -1 for i in copied]
        rule = _Rule(unrolled.function)
    rule.apply()
    if origins is None or not _roll(given, rule, origins):
        return rule.outcome
    return given.outcome


def _roll(given: _Rule, unrolled: _Rule, origins: list[int]) -> bool:
    """Give the function as written what was found for its unrolled form; False where rounds differ."""
    found: dict[int, Changes] = {}
    for i in unrolled.live:
        if origins[i] < 0:
            continue
        changes = unrolled.changes(i, origins)
        if found.setdefault(origins[i], changes) != changes:
            return False
    if not all(given.can(i, changes) for i, changes in found.items()):
        return False
    for i, changes in found.items():
        if changes.fusion is not None:
            given.outcome.fusions[i] = changes.fusion
        if changes.scaling is not None:
            given.outcome.scalings[i] = changes.scaling
    return True


class _Rule:
    def __init__(self, function: Function) -> None:
        self.function, self.instructions = function, function.instructions
        self.entry = function.is_entry
        self.blocks = find_blocks(function)
        self.values = Values(self.instructions, self.blocks, function.returns)
        self.outcome = Outcome(function, self.values)
        self.live = self._live()
        merge(self.blocks, self.instructions, self.live)
        self.users: dict[int, list[tuple[int, int]]] = {}
        self._count_users()
        self.first_counts = {p: len(found) for p, found in self.users.items()}
        self.sums = [i for i in sorted(self.live) if self._is_sum(i)]
        self.kept = {p for i in self.sums if self._twins(i) for p in self._products(i)}

    def apply(self) -> None:
        """Decide as ptxas does."""
        self.single_uses()
        self.shared_uses()
        self.scale()

    def changes(self, i: int, origins: list[int]) -> Changes:
        """What becomes of instruction ``i``, other instructions named as those that they are copies of."""
        fusion, scaling = self.outcome.fusions.get(i), self.outcome.scalings.get(i)
        return Changes(
            fusion and replace(fusion, product=origins[fusion.product]),
            scaling and replace(scaling, product=origins[scaling.product]),
            *self._constants(i),
        )

    def _constants(self, i: int) -> tuple[int | None, float | None]:
        instruction = self.instructions[i]
        if not is_folded(instruction) and not is_quotient(instruction):
            return None, None
        return self.values.folded.get(i), self.values.constant_divisor(i)

    def can(self, i: int, changes: Changes) -> bool:
        """Whether instruction ``i`` can be changed so: what is taken in is the same in every round."""
        for taken in (changes.fusion, changes.scaling):
            if taken is not None:
                value = self.values.source(i, taken.operand)
                if value.kind != "def" or value.at != taken.product:
                    return False
        return self._constants(i) == (changes.folded, changes.divisor)

    # --- who is used, by whom ----------------------------------------------------------------------------

    def _live(self) -> set[int]:
        """Instructions whose results matter, forwarded ones left out."""
        live: set[int] = set()
        pending = [
            i
            for i, instruction in enumerate(self.instructions)
            if self.blocks.of[i] in self.blocks.reachable
            and has_effect(instruction)
            and i not in self.blocks.untaken
        ]
        while pending:
            i = pending.pop()
            if i in live:
                continue
            live.add(i)
            for register in self.values.uses[i]:
                value = self._read(i, register)
                if value.kind == "def":
                    pending.append(value.at)
                elif value.kind == "phi":
                    pending += value.choices
        return live

    def _read(self, i: int, register: Register) -> Value:
        return self.values.of(i, register, register.type)

    def _count_users(self) -> None:
        for i in self.live:
            for register in self.values.uses[i]:
                value = self._read(i, register)
                if value.kind == "def":
                    self.users.setdefault(value.at, []).append((i, 0))
                for choice in value.choices:
                    made = self.values.made_by(choice)
                    for d in {choice, made.at} - {-1}:
                        self.users.setdefault(d, []).append((_BLOCKING, 0))
        for p, found in self.users.items():
            if self.values.is_product(p):
                self.users[p] = [(self._seen_from(p, i), k) for i, k in found]

    def _seen_from(self, p: int, i: int) -> int:
        """A user in another block needs the product itself, unless a factor costs no register to keep."""
        if i == _BLOCKING or self.blocks.home(i) == self.blocks.home(p):
            return i
        return i if self.values.has_constant_factor(p, self.entry) else _BLOCKING

    def _is_sum(self, i: int) -> bool:
        known = self.values
        return is_sum(self.instructions[i]) and i not in known.copies and i not in known.folded

    # --- the rule ------------------------------------------------------------------------------------------

    def _product(self, i: int, k: int) -> int | None:
        """The product that operand ``k`` of sum ``i`` is, if they can be fused."""
        value = self.values.source(i, k)
        if value.kind != "def" or value.at not in self.live or not self.values.is_product(value.at):
            return None
        return value.at if match(self.instructions[i], self.instructions[value.at]) else None

    def _products(self, i: int) -> list[int]:
        return [p for p in (self._product(i, 0), self._product(i, 1)) if p is not None]

    def _twins(self, i: int) -> bool:
        """An ``add`` of two products of the same factors, one of them used once, is left as it is."""
        if self.instructions[i].opcode != "add":
            return False
        x, y = self.values.source(i, 0), self.values.source(i, 1)
        products = self._products(i)
        if len(products) != 2 or products[0] == products[1] or x.negative != y.negative:
            return False
        p, q = products
        if is_quotient(self.instructions[p]) != is_quotient(self.instructions[q]):
            return False
        first, second = ([self.values.source(d, k) for k in (0, 1)] for d in (p, q))
        return min(self.first_counts[p], self.first_counts[q]) == 1 and first in (second, second[::-1])

    def _can_vanish(self, p: int) -> bool:
        """Whether every use left of product ``p`` is a sum of its own that may take it in."""
        if p in self.kept:
            return False
        users = [i for i, _ in self.users[p]]
        return len(set(users)) == len(users) and all(
            i >= 0 and self._is_sum(i) and i not in self.outcome.fusions and p in self._products(i)
            for i in users
        )

    def _fuse(self, i: int, k: int, p: int) -> None:
        value = self.values.source(i, k)
        turned = value.negative != (self.instructions[i].opcode == "sub" and k == 1)
        self.outcome.fusions[i] = Fusion(k, p, turned)
        if (i, 0) in self.users[p]:  # a use in another block may count as one that needs the product itself
            self.users[p].remove((i, 0))

    def single_uses(self) -> None:
        """First round: products that one sum reads and nobody else."""
        for i in self.sums:
            if self.instructions[i].type not in SINGLE_USE_FIRST:
                continue
            for k in (0, 1):
                p = self._product(i, k)
                if p is not None and len(self.users[p]) == 1 and self._can_vanish(p):
                    self._fuse(i, k, p)
                    break

    def shared_uses(self) -> None:
        """Second round: products all of whose uses are sums."""
        for i in self.sums:
            if i in self.outcome.fusions:
                continue
            choices = [
                (k, p) for k in (0, 1) if (p := self._product(i, k)) is not None and self._can_vanish(p)
            ]
            if choices:
                k, p = min(choices, key=lambda choice: self.first_counts[choice[1]])
                self._fuse(i, k, p)

    def fuse_all(self) -> None:
        """``on``: every sum takes the first product it can."""
        for i in self.sums:
            for k in (0, 1):
                p = self._product(i, k)
                if p is not None:
                    self._fuse(i, k, p)
                    break

    def scale(self) -> None:
        """``(a * b) * 2^k`` of f32, the inner product used once: one rounding."""
        for i in sorted(self.live):
            if self._is_plain_product(i) and self.users.get(i):
                found = next((s for k in (0, 1) if (s := self._scaling(i, k)) is not None), None)
                if found is not None:
                    self.outcome.scalings[i] = found

    def _is_plain_product(self, i: int) -> bool:
        found = arithmetic(self.instructions[i])
        return found is not None and found.type is T.F32 and self.values.is_product(i)

    def _scaling(self, i: int, k: int) -> Scaling | None:
        inner, factor = self.values.source(i, k), self.values.source(i, 1 - k)
        if factor.kind != "const" or inner.kind != "def":
            return None
        power, p = _POWERS.get(constants.number(factor.bits, T.F32)), inner.at
        if power is None or p not in self.live or not self._is_plain_product(p) or p in self.outcome.scalings:
            return None
        once = len(self.users.get(p, ())) == 1 and self.blocks.home(p) == self.blocks.home(i)
        if not once or not match(self.instructions[i], self.instructions[p]):
            return None
        return Scaling(k, p, power, inner.negative)
