"""zluda.records.dataclass does what dataclasses.dataclass does."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from dataclasses import FrozenInstanceError, asdict, field, replace
from typing import Any

import pytest

from zluda import records


@records.dataclass(frozen=True, slots=True)
class Point:
    """Two coordinates."""

    x: int
    y: int = 2


@records.dataclass(frozen=True, slots=True)
class Labelled(Point):
    """A point with a name, and notes that do not count."""

    name: str = "p"
    notes: list[str] = field(default_factory=list, compare=False, repr=False)


def made_by(decorator: Any, **options: Any) -> Any:
    class Made:
        """Every kind of field."""

        first: int
        second: str = "s"
        third: list[int] = field(default_factory=list)
        fourth: int = field(default=4, kw_only=True)
        fifth: int = field(default=5, init=False)
        sixth: dict[str, int] = field(default_factory=dict, init=False, repr=False, compare=False)

    return decorator(**options)(Made)


OPTIONS = [
    {},
    {"frozen": True},
    {"slots": True},
    {"frozen": True, "slots": True},
    {"frozen": True, "slots": True, "kw_only": True},
    {"slots": True, "eq": False},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_behaves_as_the_standard_decorator(options: dict[str, bool]) -> None:
    ours, theirs = (made_by(d, **options) for d in (records.dataclass, dataclasses.dataclass))

    def facts(cls: Any) -> list[object]:
        a, b, c = cls(first=1), cls(first=1), cls(first=1, third=[1], fourth=7)
        hashable = cls.__hash__ is not None
        return [
            repr(a).replace("made_by.<locals>.", ""),
            repr(c),
            a == b,
            a == c,
            a != c,
            a.__eq__(object()),
            hashable,
            cls.__match_args__,
            hasattr(a, "__dict__"),
            a.third is b.third,
            asdict(c),
            asdict(replace(c, first=9)),
            [f.name for f in dataclasses.fields(cls)],
            [(p.name, p.kind) for p in inspect.signature(cls).parameters.values()],
            asdict(copy.copy(c)),
            asdict(copy.deepcopy(c)),
        ]

    assert facts(ours) == facts(theirs)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_refuses_as_the_standard_decorator(options: dict[str, bool]) -> None:
    for cls in (made_by(d, **options) for d in (records.dataclass, dataclasses.dataclass)):
        with pytest.raises(TypeError, match="first"):
            cls()
        with pytest.raises(TypeError, match="other"):
            cls(first=1, other=2)
        whole = cls(first=1)
        if options.get("frozen"):
            with pytest.raises(FrozenInstanceError, match="'first'"):
                whole.first = 2
            with pytest.raises(FrozenInstanceError, match="'first'"):
                del whole.first
        else:
            whole.first = 2
            assert whole.first == 2


def test_hashes_agree_with_equality_and_count_compared_fields_alone() -> None:
    assert hash(Labelled(1, notes=["a"])) == hash(Labelled(1, notes=["b"]))
    assert Labelled(1, notes=["a"]) == Labelled(1)
    assert {Point(1), Point(1, 2), Point(1, 3)} == {Point(1), Point(1, 3)}
    assert Point(1) != Labelled(1)


def test_one_field_is_compared_by_identity_first_as_in_a_tuple() -> None:
    @records.dataclass(frozen=True)
    class One:
        value: float

    nan = float("nan")
    assert One(nan) == One(nan)
    assert One(nan) != One(float("nan"))


def test_inherits_pickles_and_matches() -> None:
    labelled = Labelled(3, 4, "q", ["n"])
    again = pickle.loads(pickle.dumps(labelled))
    assert again == labelled and again.notes == ["n"]
    match labelled:
        case Labelled(x, y, name):
            assert (x, y, name) == (3, 4, "q")
    assert repr(labelled) == "Labelled(x=3, y=4, name='q')"


def test_what_a_class_defines_itself_is_kept() -> None:
    @records.dataclass(frozen=True, slots=True)
    class Own:
        value: int

        def __post_init__(self) -> None:
            object.__setattr__(self, "value", abs(self.value))

        def __repr__(self) -> str:
            return f"<{self.value}>"

    assert repr(Own(-3)) == "<3>"


def test_a_record_that_holds_itself_is_shown() -> None:
    @records.dataclass
    class Node:
        inside: list[Any]

    node = Node([])
    node.inside.append(node)
    assert "..." in repr(node)
