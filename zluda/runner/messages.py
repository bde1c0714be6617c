"""What a command and its reply hold, and how errors cross the channel.

A command is ``(entry index, arguments, keyword arguments)`` with the index into :data:`COMMANDS`. A reply is
``(True, value)`` or ``(False, error)``; an error is ``(type name, {constructor argument: value})``.
"""

from __future__ import annotations

from typing import Any

from zluda.driver import ENTRIES, CudaError
from zluda.errors import DeviceError, Error, HangError, LaunchError, PtxError, UnsupportedError
from zluda.runner.channel import ChannelError

# The driver's entries, and what the runner itself can be told.
COMMANDS: tuple[str, ...] = (*ENTRIES, "prepare_launch", "perturb", "take_profile", "close")
INDEX = {name: index for index, name in enumerate(COMMANDS)}

# Error type → its constructor's arguments, which are its attributes too.
_FIELDS: dict[type[Error], tuple[str, ...]] = {
    CudaError: ("result", "call", "detail", "reason", "launch"),
    HangError: ("message", "kernel", "block", "thread", "address"),
    LaunchError: ("message", "kernel", "block", "thread", "address"),
    UnsupportedError: ("what", "where", "began"),
    PtxError: ("message", "file", "line", "column", "text", "expected"),
    DeviceError: ("device", "message", "remedy"),
}
_TYPES = {kind.__name__: kind for kind in _FIELDS}


def encode_error(error: Error) -> tuple[str, dict[str, Any]]:
    """Any of our errors as a message; a type without a row travels as its text."""
    for kind, names in _FIELDS.items():
        if isinstance(error, kind):
            return kind.__name__, {name: _encode_field(getattr(error, name)) for name in names}
    return Error.__name__, {"message": str(error)}


def decode_error(message: Any) -> Error:
    """The error that :func:`encode_error` wrote; ChannelError for anything else."""
    try:
        name, values = message
        if name == Error.__name__:
            return Error(str(values["message"]))
        kind = _TYPES[name]
        return kind(**{field: _decode_field(field, values[field]) for field in _FIELDS[kind]})
    except (TypeError, ValueError, KeyError) as error:
        raise ChannelError(f"an error that is none of ours: {type(error).__name__}") from error


def _encode_field(value: object) -> object:
    return encode_error(value) if isinstance(value, Error) else value


def _decode_field(field: str, value: Any) -> Any:
    return decode_error(value) if field == "launch" and value is not None else value
