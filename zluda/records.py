"""``dataclass``, as :mod:`dataclasses` has it but made in half the time.

zluda defines over two hundred data classes, and :mod:`dataclasses` compiles up to six methods for each of
them from text: that was two fifths of importing what ``zluda compile`` needs. Here only ``__init__`` is
compiled; the other methods are shared, or closures over the fields' names. The fields are the standard
library's, so that ``fields``, ``replace``, ``asdict``, ``match``, ``copy`` and ``pickle`` work as ever.
"""

from __future__ import annotations

import dataclasses
import reprlib
from collections.abc import Callable
from dataclasses import MISSING, FrozenInstanceError, fields
from operator import attrgetter
from typing import TYPE_CHECKING, Any

__all__ = ["dataclass"]


def _dataclass(
    cls: type | None = None,
    /,
    *,
    eq: bool = True,
    frozen: bool = False,
    slots: bool = False,
    kw_only: bool = False,
) -> Any:
    """A class decorator: parameters and results are those of :func:`dataclasses.dataclass`."""

    def decorate(cls: type) -> type:
        own = frozenset(vars(cls))
        if cls.__doc__ is None:
            cls.__doc__ = cls.__name__  # else a signature would be worked out for it
        plain = dataclasses.dataclass(init=False, repr=False, eq=False, slots=slots, kw_only=kw_only)
        found: Any = plain(cls)
        methods: dict[str, Any] = {"__init__": _init(found, frozen=frozen), "__repr__": _repr}
        if frozen:
            methods |= {"__setattr__": _refuse_to_set, "__delattr__": _refuse_to_delete}
            if slots:  # copies and pickles are filled by setattr, else
                methods |= {"__getstate__": _state, "__setstate__": _set_state}
        if eq:
            methods |= _comparison(found, frozen=frozen)
        for name, method in methods.items():
            if name not in own:
                setattr(found, name, method)
        return found  # type: ignore[no-any-return]

    return decorate if cls is None else decorate(cls)


if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:
    dataclass = _dataclass


def _init(cls: Any, *, frozen: bool) -> Callable[..., None]:
    """``__init__`` of a class whose fields are known; defaults are names of its own global scope."""
    scope: dict[str, Any] = {"_set_": object.__setattr__, "_missing_": MISSING}
    positional: list[str] = ["self"]
    by_name: list[str] = []
    body: list[str] = []
    for field in fields(cls):
        name, value = field.name, field.name
        parameter = name
        if field.default is not MISSING:
            scope[f"_default_{name}_"] = field.default
            parameter = f"{name}=_default_{name}_"
        elif field.default_factory is not MISSING:
            scope[f"_make_{name}_"] = field.default_factory
            parameter = f"{name}=_missing_"
            value = f"_make_{name}_() if {name} is _missing_ else {name}"
        if field.init:
            (by_name if field.kw_only else positional).append(parameter)
        elif field.default_factory is not MISSING:
            value = f"_make_{name}_()"
        elif field.default is not MISSING:
            value = f"_default_{name}_"
        else:
            continue
        body.append(f"_set_(self, {name!r}, {value})" if frozen else f"self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    if by_name:
        positional += ["*", *by_name]
    exec(f"def __init__({', '.join(positional)}):\n " + "\n ".join(body or ["pass"]), scope)
    made: Callable[..., None] = scope["__init__"]
    made.__qualname__, made.__module__ = f"{cls.__qualname__}.__init__", cls.__module__
    return made


def _comparison(cls: Any, *, frozen: bool) -> dict[str, Any]:
    """``__eq__`` and ``__hash__`` over the fields that are compared; what can change has no hash."""
    names = [field.name for field in fields(cls) if field.compare]
    if len(names) > 1:
        values: Callable[[Any], Any] = attrgetter(*names)
    else:  # of one name attrgetter gives no tuple

        def values(self: Any) -> tuple[Any, ...]:
            return tuple(getattr(self, name) for name in names)

    def __eq__(self: Any, other: object) -> Any:
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    def __hash__(self: Any) -> int:
        return hash(values(self))

    return {"__eq__": __eq__, "__hash__": __hash__ if frozen else None}


@reprlib.recursive_repr()
def _repr(self: Any) -> str:
    shown = ", ".join(f"{field.name}={getattr(self, field.name)!r}" for field in fields(self) if field.repr)
    return f"{type(self).__qualname__}({shown})"


def _refuse_to_set(self: Any, name: str, value: Any) -> None:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_to_delete(self: Any, name: str) -> None:
    raise FrozenInstanceError(f"cannot delete field {name!r}")


def _state(self: Any) -> list[Any]:
    return [getattr(self, field.name) for field in fields(self)]


def _set_state(self: Any, state: list[Any]) -> None:
    for field, value in zip(fields(self), state, strict=True):
        object.__setattr__(self, field.name, value)
