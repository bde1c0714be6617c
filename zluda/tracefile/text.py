"""Calls and memory as lines of text, and as objects that JSON can hold.

A call reads as a system call does in ``strace``:
``#17 [4711] 12.345678 cuMemAlloc_v2(dptr=0x7ffd90 → 0x7f0000000000, bytesize=4096) = 0 <1.2 µs>``
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from zluda.tracefile.records import Call, Direction, Fidelity, Launch, Parameter, Payload, Signature

_SHOWN_BYTES = 32  # of a payload in a line
_SHOWN_CHARACTERS = 80
_ROW_BYTES = 16  # of memory in a line
_MOST_INDENTED = 8
_VALUE_WORDS = 4  # of an attribute that has no name here

# How a word of a C type is read: (bits, signed). What is not here is 64 bits and printed in hexadecimal.
_NUMBERS = {
    "int": (32, True),
    "unsigned int": (32, False),
    "size_t": (64, False),
    "int64_t": (64, True),
    "signed char": (8, True),
    "long long": (64, True),
    "unsigned long long": (64, False),
    "unsigned short": (16, False),
    "unsigned char": (8, False),
    "cuuint32_t": (32, False),
    "cuuint64_t": (64, False),
    "CUdevice": (32, True),
}


# Scalars of libraries, by their type and size.
_FLOATS = {
    ("float *", 4): struct.Struct("<f"),
    ("double *", 8): struct.Struct("<d"),
    ("cuComplex *", 8): struct.Struct("<2f"),
    ("cuDoubleComplex *", 16): struct.Struct("<2d"),
}


def call_line(
    call: Call,
    signature: Signature,
    payloads: list[Payload],
    *,
    result_name: Callable[[int], str],
    start_ns: int,
    depth: int = 0,
) -> str:
    """One call, indented by ``depth``. ``start_ns`` is the time that counts as zero; ``result_name`` names a
    CUresult.
    """
    arguments = ", ".join(
        _argument(index, parameter, call, payloads) for index, parameter in enumerate(signature.parameters)
    )
    seconds = (call.start_ns - start_ns) / 1e9
    nested = "" if call.parent is None else f" (in #{call.parent})"
    indent = "  " * min(depth, _MOST_INDENTED)
    line = f"#{call.sequence} [{call.thread}] {seconds:.6f} {indent}{call.function}({arguments}){nested}"
    if call.end_ns is None:
        return printable(f"{line} = ? <never returned>")
    result = "?" if call.result is None else result_name(call.result)
    return printable(f"{line} = {result} <{(call.end_ns - call.start_ns) / 1e3:.1f} µs>")


def _argument(index: int, parameter: Parameter, call: Call, payloads: list[Payload]) -> str:
    text = f"{parameter.name}={_word(parameter.type, call.arguments[parameter.name])}"
    if parameter.name in call.pointees_before:
        text += f" → {_pointee(call.pointees_before[parameter.name])}"
    if parameter.name in call.pointees:
        text += f" → {_pointee(call.pointees[parameter.name])}"
    for payload in payloads:
        if payload.parameter == index:
            text += f" → {_data(parameter, payload)}"
    return text


def _word(type_name: str, word: int) -> str:
    plain = type_name.removeprefix("const ").strip()
    if plain in ("float", "double"):
        size = 4 if plain == "float" else 8
        return f"{_FLOATS[f'{plain} *', size].unpack(word.to_bytes(8, 'little')[:size])[0]:g}"
    if plain not in _NUMBERS:
        return "NULL" if word == 0 and plain.endswith("*") else f"{word:#x}"
    bits, signed = _NUMBERS[plain]
    value = word & ((1 << bits) - 1)
    return str(value - (1 << bits) if signed and value >> (bits - 1) else value)


def _pointee(value: int | bytes) -> str:
    return f"{value:#x}" if isinstance(value, int) else _hex(value)


def _data(parameter: Parameter, payload: Payload) -> str:
    data = payload.data
    if parameter.type.count("*") > 1 and "char" in parameter.type:
        texts = data.removesuffix(b"\0").split(b"\0")
        return f"[{', '.join(map(_quoted, texts))}]"
    if "char" in parameter.type and "unsigned char" not in parameter.type:
        return _quoted(data.partition(b"\0")[0])
    if (number := _FLOATS.get((parameter.type.removeprefix("const "), len(data)))) is not None:
        return ", ".join(f"{value:g}" for value in number.unpack(data))
    arrow = "out, " if payload.direction is Direction.OUT else ""
    return f"{_hex(data)} ({arrow}{len(data)} bytes)"


def _quoted(text: bytes) -> str:
    cut = len(text) > _SHOWN_CHARACTERS
    return json.dumps(text[:_SHOWN_CHARACTERS].decode("utf-8", "backslashreplace")) + "…" * cut


def _hex(data: bytes) -> str:
    return data[:_SHOWN_BYTES].hex(" ", 4) + ("…" if len(data) > _SHOWN_BYTES else "")


def launch_line(launch: Launch) -> str:
    """One launch: kernel, configuration, parameters, and what the GPU ran where that is known."""
    shape = f"grid={_triple(launch.grid)} block={_triple(launch.block)}"
    if launch.cluster != (1, 1, 1):
        shape += f" cluster={_triple(launch.cluster)}"
    shape += "".join(f" {one}" for one in attributes(launch.attributes))
    if launch.shared_bytes:
        shape += f" shared={launch.shared_bytes}"
    took = "" if launch.gpu_time_ns is None else f" <{launch.gpu_time_ns / 1e3:.1f} µs>"
    ran = "" if launch.fidelity is Fidelity.UNKNOWN else f" ran={launch.fidelity.value}"
    call = f"#{launch.call} {launch.kernel}({', '.join(parameters(launch))})"
    return printable(f"{call} {shape} stream={launch.stream:#x}{ran}{took}")


# CUlaunchAttributeID, with what of its value is shown: the number of 32-bit words, signed; 0: none.
_ATTRIBUTES = {
    1: ("ACCESS_POLICY_WINDOW", 8),
    2: ("COOPERATIVE", 1),
    3: ("SYNCHRONIZATION_POLICY", 1),
    5: ("CLUSTER_SCHEDULING_POLICY_PREFERENCE", 1),
    6: ("PROGRAMMATIC_STREAM_SERIALIZATION", 1),
    7: ("PROGRAMMATIC_EVENT", 4),
    8: ("PRIORITY", 1),
    9: ("MEM_SYNC_DOMAIN_MAP", 1),
    10: ("MEM_SYNC_DOMAIN", 1),
    11: ("PREFERRED_CLUSTER_DIMENSION", 3),
    12: ("LAUNCH_COMPLETION_EVENT", 3),
    13: ("DEVICE_UPDATABLE_KERNEL_NODE", 1),
    14: ("PREFERRED_SHARED_MEMORY_CARVEOUT", 1),
    16: ("NVLINK_UTIL_CENTRIC_SCHEDULING", 1),
}
_CLUSTER_DIMENSION = 4  # stands in the shape
_ATTRIBUTE_BYTES, _VALUE_AT = 72, 8  # CUlaunchAttribute


def attributes(data: bytes) -> list[str]:
    """Each launch attribute but the cluster's dimension, as NAME=VALUE; ``data`` is the array as recorded."""
    found = []
    for at in range(0, len(data) - _ATTRIBUTE_BYTES + 1, _ATTRIBUTE_BYTES):
        number = int.from_bytes(data[at : at + 4], "little")
        name, words = _ATTRIBUTES.get(number, (f"attribute {number}", _VALUE_WORDS))
        value = struct.unpack_from(f"<{words}i", data, at + _VALUE_AT)
        if number != _CLUSTER_DIMENSION and number:
            found.append(f"{name}={','.join(map(str, value))}")
    return found


def parameters(launch: Launch) -> list[str]:
    """Each parameter's bytes, as a number where it is 1, 2, 4 or 8 long; the whole buffer where no layout is
    known.
    """
    layout = launch.layout if launch.layout is not None else ((0, len(launch.parameters)),)
    found = []
    for offset, size in layout:
        data = launch.parameters[offset : offset + size]
        found.append(f"{int.from_bytes(data, 'little'):#x}" if size in (1, 2, 4, 8) else _hex(data))
    return found


def _triple(value: tuple[int, int, int]) -> str:
    return ",".join(map(str, value))


def printable(text: str, *, keep: str = "") -> str:
    """``text`` without characters that would steer a terminal, but for those in ``keep``: names in a trace
    are anybody's.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else c.encode("unicode_escape").decode() for c in text)


def memory_lines(address: int, data: bytes, known: bytes | None) -> Iterator[str]:
    """A hex dump, sixteen bytes a line; ``??`` stands for a byte that is not known."""
    for start in range(0, len(data), _ROW_BYTES):
        row = data[start : start + _ROW_BYTES]
        mask = b"\1" * len(row) if known is None else known[start : start + _ROW_BYTES]
        cells = [f"{byte:02x}" if there else "??" for byte, there in zip(row, mask, strict=True)]
        text = "".join(
            chr(byte) if there and 32 <= byte < 127 else "." for byte, there in zip(row, mask, strict=True)
        )
        yield f"{address + start:#014x}  {' '.join(cells):<{3 * _ROW_BYTES}} {text}"


def plain(value: Any) -> Any:
    """Records as JSON holds them: bytes in hexadecimal, enums by value, tuples as lists, fields by name."""
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        names = getattr(value, "_fields", None)  # of a record
        items = [plain(item) for item in value]
        return items if names is None else dict(zip(names, items, strict=True))
    return value
