"""Packing a launch's arguments by a kernel's parameter layout, checking each against its parameter."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from zluda.errors import LaunchError

if TYPE_CHECKING:
    from zluda.device.base import Dim3, Kernel, KernelParameter

_POINTER_BYTES = 8


def dimensions(what: str, value: int | Sequence[int], kernel: str) -> Dim3:
    """A grid or block as three positive integers; an integer or fewer dimensions are filled up with ones."""
    items: list[Any] = list(value) if isinstance(value, Iterable) else [value]
    if not 1 <= len(items) <= 3 or not all(is_integer(n) and n >= 1 for n in items):
        raise LaunchError(f"{what} is {value!r}; expected one to three positive integers", kernel=kernel)
    x, y, z = (*(int(n) for n in items), 1, 1)[:3]
    return x, y, z


def pack(kernel: Kernel, args: Sequence[Any], device: object) -> bytes:
    """The packed ``.param`` buffer for ``args``: arrays of ``device``, NumPy scalars, integers, bytes.

    Raises LaunchError saying which argument is wrong and what was expected.
    """
    if len(args) != len(kernel.parameters):
        names = ", ".join(p.name or f"#{i}" for i, p in enumerate(kernel.parameters))
        text = f"{len(args)} arguments; expected {len(kernel.parameters)}" + (f" ({names})" if names else "")
        raise LaunchError(text, kernel=kernel.name)
    buffer = bytearray(kernel.parameter_bytes)
    for i, (argument, parameter) in enumerate(zip(args, kernel.parameters, strict=True)):
        data = _bytes(argument, parameter, device, kernel.name, i)
        buffer[parameter.offset : parameter.offset + parameter.size] = data
    return bytes(buffer)


def _bytes(argument: Any, parameter: KernelParameter, device: object, kernel: str, index: int) -> bytes:
    from zluda.device.api import Array

    def wrong(what: str, expected: str = "") -> LaunchError:
        wanted = expected or f"{parameter.size} bytes"
        return LaunchError(f"argument {index} ({parameter.name}): {what}; expected {wanted}", kernel=kernel)

    if isinstance(argument, Array):
        if argument.device is not device:
            raise wrong("an array of another device", "one of this device")
        if argument.freed:
            raise wrong("an array that was freed", "a live one")
        if parameter.size != _POINTER_BYTES:
            raise wrong("an array, which is a pointer of 8 bytes")
        return argument.address.to_bytes(_POINTER_BYTES, "little")
    if is_integer(argument) and isinstance(argument, int):
        return _integer(argument, parameter.size, wrong)
    if isinstance(argument, bytes | bytearray | memoryview):
        data = bytes(argument)
    elif hasattr(argument, "dtype") and getattr(argument, "ndim", None) == 0:  # a NumPy scalar
        data = argument.tobytes()
    else:
        kinds = "a device array, a NumPy scalar (numpy.float32(2)), an integer or bytes"
        raise wrong(f"a {type(argument).__name__}", kinds)
    if len(data) != parameter.size:
        raise wrong(f"{_described(argument)} of {len(data)} bytes")
    return data


def _integer(value: int, size: int, wrong: Any) -> bytes:
    if size not in (1, 2, 4, 8):
        raise wrong("an integer")
    low, high = -(1 << 8 * size - 1), (1 << 8 * size) - 1
    if not low <= value <= high:
        raise wrong(f"the integer {value}", f"one from {low} to {high}")
    return (value & high).to_bytes(size, "little")


def _described(argument: Any) -> str:
    dtype = getattr(argument, "dtype", None)
    return f"a {type(argument).__name__}" if dtype is None else f"a {dtype}"


def is_integer(value: object) -> bool:
    """Whether ``value`` counts as an integer: not a bool, and a NumPy integer does as a dimension."""
    return hasattr(value, "__index__") and not isinstance(value, bool) and getattr(value, "ndim", 0) == 0
