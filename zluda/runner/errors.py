"""What a caller sees when the runner process ends before its work does."""

from __future__ import annotations

import signal as signals

from zluda.errors import Error


class RunnerDied(Error):
    """The runner crashed, left or made no progress.

    ``reason`` is ``"crash"`` or ``"hang"``; ``signal`` the signal that ended it and ``exit_status`` its
    status where it left by itself (either may be None); ``kernel`` the kernel that was running, empty if
    none was; ``command`` the driver entry that was under way; ``detail`` the last line that it wrote, or what
    else is known.
    """

    def __init__(
        self,
        reason: str,
        *,
        command: str = "",
        kernel: str = "",
        signal: int | None = None,
        exit_status: int | None = None,
        seconds: float | None = None,
        detail: str = "",
    ) -> None:
        self.reason, self.command, self.kernel = reason, command, kernel
        self.signal, self.exit_status, self.detail = signal, exit_status, detail
        doing = f"kernel {kernel}" if kernel else (command or "starting")
        if command == "prepare_launch":
            doing = f"compiling {doing}"
        if reason == "hang":
            text = "no progress" + (f" in {seconds:g} s" if seconds is not None else "")
        elif signal is not None:
            text = f"ended by {_signal_name(signal)}"
        elif exit_status is not None:
            text = f"exited with status {exit_status}"
        else:
            text = "ended"
        super().__init__(f"runner: {text} ({doing})" + (f": {detail}" if detail else ""))


def _signal_name(number: int) -> str:
    try:
        return signals.Signals(number).name
    except ValueError:
        return f"signal {number}"
