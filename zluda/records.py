"""``dataclass``, as :mod:`dataclasses` has it but made in a fraction of the time.

zluda defines over two hundred data classes, and :mod:`dataclasses` compiles up to six methods for each of
them from text: that was two fifths of importing what ``zluda compile`` needs. Here a class gets its slots,
and the rest when it is first looked up: of the classes that are imported, a process uses half. Only
``__init__`` is compiled; the other methods are shared, or closures over the fields' names. To
:mod:`dataclasses` they are data classes: ``fields``, ``replace``, ``asdict``, ``match``, ``copy`` and
``pickle`` work as ever. All annotations are fields: there is no ``ClassVar``, ``InitVar`` or ``KW_ONLY``.
"""

from __future__ import annotations

import dataclasses
import reprlib
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, FrozenInstanceError, fields
from functools import partial
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
        written = {n: v for n, v in vars(cls).items() if n not in ("__dict__", "__weakref__")}
        if not written.get("__doc__"):
            written["__doc__"] = cls.__doc__ = cls.__name__  # else a signature would be worked out for it
        standard = partial(_standard, written=written, frozen=frozen, kw_only=kw_only)
        methods: dict[str, Any] = {
            _OWN: partial(_own_fields, written, kw_only=kw_only),
            "__init__": _Late(partial(_init, frozen=frozen)),
            "__repr__": _repr,
            "__match_args__": _Late(_match_args),
            "__dataclass_fields__": _Late(partial(standard, "__dataclass_fields__")),
            "__dataclass_params__": _Late(partial(standard, "__dataclass_params__")),
        }
        if frozen:
            methods |= {"__setattr__": _refuse_to_set, "__delattr__": _refuse_to_delete}
            if slots:  # copies and pickles are filled by setattr, else
                methods |= {"__getstate__": _state, "__setstate__": _set_state}
        if eq:  # what can change has no hash
            methods |= {"__eq__": _Late(_eq), "__hash__": _Late(_hash) if frozen else None}
        return (_with_slots if slots else _without_slots)(cls, written, methods)

    return decorate if cls is None else decorate(cls)


if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:
    dataclass = _dataclass

_OWN = "__zluda_fields__"
"""Of each class: what gives the fields that it adds to those of its bases."""


class _Late:
    """An attribute of a class that is made, and takes this one's place, when it is first looked up."""

    __slots__ = ("_cls", "_make", "_name")

    def __init__(self, make: Callable[[type], Any]) -> None:
        self._make = make

    def __set_name__(self, cls: type, name: str) -> None:
        self._cls, self._name = cls, name

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        made = self._make(self._cls)
        if vars(self._cls).get(self._name) is self:
            type.__setattr__(self._cls, self._name, made)
        return made.__get__(instance, owner) if hasattr(made, "__get__") else made


def _with_slots(cls: type, written: Mapping[str, Any], methods: Mapping[str, Any]) -> type:
    """The class once more, its own fields slots."""
    names = written.get("__annotations__", {})
    taken = {slot for base in cls.__mro__[1:] for slot in _slots(base)}
    namespace = {**methods, **{n: v for n, v in written.items() if n not in names}}
    namespace["__slots__"] = tuple(n for n in names if n not in taken)
    found = type(cls)(cls.__name__, cls.__bases__, namespace)
    found.__qualname__ = cls.__qualname__
    return found


def _without_slots(cls: type, written: Mapping[str, Any], methods: Mapping[str, Any]) -> type:
    """The class itself; what ``field`` says of a default stands where the default does."""
    for name in written.get("__annotations__", {}):
        value = written.get(name)
        if isinstance(value, Field):
            if value.default is MISSING:
                delattr(cls, name)
            else:
                setattr(cls, name, value.default)
    for name, method in methods.items():
        if name not in written:
            setattr(cls, name, method)
            if isinstance(method, _Late):
                method.__set_name__(cls, name)
    return cls


def _slots(cls: type) -> tuple[str, ...]:
    slots = vars(cls).get("__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(slots)


def _own_fields(written: Mapping[str, Any], *, kw_only: bool) -> dict[str, Field[Any]]:
    """The fields that a class adds, from what was written in it. Raises as :mod:`dataclasses` does."""
    found: dict[str, Field[Any]] = {}
    for name, annotation in written.get("__annotations__", {}).items():
        if isinstance(annotation, str) and annotation.startswith(("ClassVar", "InitVar", "KW_ONLY")):
            raise TypeError(f"{name}: {annotation} is not for zluda.records")
        value = written.get(name, MISSING)
        field: Field[Any] = value if isinstance(value, Field) else dataclasses.field(default=value)
        if field.default is not MISSING and field.default.__class__.__hash__ is None:
            raise ValueError(f"mutable default {type(field.default)} for field {name}: use default_factory")
        field.name = name
        if field.kw_only is MISSING:
            field.kw_only = kw_only
        found[name] = field
    return found


def _all_fields(cls: type) -> list[Field[Any]]:
    """Those of its bases first."""
    found: dict[str, Field[Any]] = {}
    for base in reversed(cls.__mro__):
        own = vars(base).get(_OWN)
        if own is not None:
            found |= own()
        elif "__dataclass_fields__" in vars(base):
            found |= {field.name: field for field in fields(base)}
    return list(found.values())


def _standard(name: str, cls: Any, *, written: Mapping[str, Any], frozen: bool, kw_only: bool) -> Any:
    """What :mod:`dataclasses` would have as the attribute ``name``, of a class of its own."""
    plain = type(cls)(cls.__name__, cls.__bases__, {n: v for n, v in written.items() if n != "__slots__"})
    made = dataclasses.dataclass(init=False, repr=False, eq=False, frozen=frozen, kw_only=kw_only)(plain)
    return getattr(made, name)


def _match_args(cls: type) -> tuple[str, ...]:
    return tuple(field.name for field in _all_fields(cls) if field.init and not field.kw_only)


def _init(cls: Any, *, frozen: bool) -> Callable[..., None]:
    """``__init__`` of a class whose fields are known; defaults are names of its own global scope."""
    scope: dict[str, Any] = {"_set_": object.__setattr__, "_missing_": MISSING}
    positional: list[str] = ["self"]
    by_name: list[str] = []
    body: list[str] = []
    for field in _all_fields(cls):
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


def _values(cls: type) -> Callable[[Any], Any]:
    """What gives the values of the fields that are compared."""
    names = [field.name for field in _all_fields(cls) if field.compare]
    if len(names) > 1:
        return attrgetter(*names)
    return lambda self: tuple(getattr(self, name) for name in names)  # of one name attrgetter gives no tuple


def _eq(cls: type) -> Callable[[Any, object], Any]:
    values = _values(cls)

    def __eq__(self: Any, other: object) -> Any:
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    return __eq__


def _hash(cls: type) -> Callable[[Any], int]:
    values = _values(cls)

    def __hash__(self: Any) -> int:
        return hash(values(self))

    return __hash__


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
