"""Errors that a person reads: what went wrong, where, and what to do about it.

Every error the package raises on purpose derives from :class:`Error`; the
command line prints ``str(error)`` in one line and exits with status 2.
"""

from __future__ import annotations


class Error(Exception):
    """Base of all errors raised on purpose by zluda."""


class PtxError(Error):
    """PTX text that is not valid.

    ``line`` and ``column`` are 1-based. ``text`` is the offending text and
    ``expected`` says what the parser would have accepted there.
    """

    def __init__(
        self,
        message: str,
        *,
        file: str = "<ptx>",
        line: int = 0,
        column: int = 0,
        text: str = "",
        expected: str = "",
    ) -> None:
        self.message, self.file, self.line, self.column = message, file, line, column
        self.text, self.expected = text, expected
        detail = f"{file}:{line}:{column}: {message}"
        if text:
            detail += f": {text!r}"
        if expected:
            detail += f"; expected {expected}"
        super().__init__(detail)

    def in_file(self, file: str) -> PtxError:
        """The same error, of a file that the parser was not told of."""
        place = {"line": self.line, "column": self.column}
        return PtxError(self.message, file=file, **place, text=self.text, expected=self.expected)


class UnsupportedError(Error):
    """Something valid that this version cannot do: ``what`` by its own name, ``where`` it stands.

    ``began``: it was met by a kernel that was running, which may have written memory before.
    """

    def __init__(self, what: str, where: str = "", *, began: bool = False) -> None:
        self.what, self.where, self.began = what, where, began
        super().__init__(f"unsupported: {what}" + (f" ({where})" if where else ""))


class TraceError(Error):
    """A trace file that cannot be read or written.

    ``offset`` is a byte offset in the file, ``call`` a 0-based call number; either may be unknown.
    """

    def __init__(
        self, message: str, *, file: str = "", offset: int | None = None, call: int | None = None
    ) -> None:
        self.message, self.file, self.offset, self.call = message, file, offset, call
        place = file
        if offset is not None:
            place += f" at byte {offset}"
        if call is not None:
            place += f" at call {call}"
        super().__init__(f"{place}: {message}" if place else message)


class DeviceError(Error):
    """A device that is not there or does not work; ``remedy`` says what to install or change."""

    def __init__(self, device: str, message: str, *, remedy: str = "") -> None:
        self.device, self.message, self.remedy = device, message, remedy
        super().__init__(f"device {device}: {message}" + (f"; {remedy}" if remedy else ""))


class LaunchError(Error):
    """A kernel launch that failed; what is not known of the place is None."""

    def __init__(
        self,
        message: str,
        *,
        kernel: str = "",
        block: tuple[int, int, int] | None = None,
        thread: tuple[int, int, int] | None = None,
        address: int | None = None,
    ) -> None:
        self.message, self.kernel, self.block, self.thread, self.address = (
            message,
            kernel,
            block,
            thread,
            address,
        )
        place = f"kernel {kernel}" if kernel else "launch"
        if block is not None:
            place += f", block {block}"
        if thread is not None:
            place += f", thread {thread}"
        if address is not None:
            place += f", address {address:#x}"
        super().__init__(f"{place}: {message}")


class HangError(LaunchError):
    """A kernel that was stopped because it made no progress; the message says what it waits for."""
