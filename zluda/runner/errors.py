"""What a caller sees when the runner process ends before its work does."""

from __future__ import annotations

import signal as signals

from zluda.errors import Error


class RunnerDied(Error):
    """The runner crashed, left or made no progress.

    ``reason`` is ``"crash"`` or ``"hang"``; ``signal`` the signal that ended it and ``exit_status`` its status
    where it left by itself (either may be None); ``kernel`` the kernel that was running, empty if none was;
    ``command`` the driver entry that was under way.
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
    ) -> None:
        self.reason, self.command, self.kernel = reason, command, kernel
        self.signal, self.exit_status = signal, exit_status
        doing = f"kernel {kernel}" if kernel else (command or "starting")
        if reason == "hang":
            limit = f" in {seconds:g} s" if seconds is not None else ""
            super().__init__(f"runner: no progress{limit} ({doing})")
        elif signal is not None:
            super().__init__(f"runner: ended by {_signal_name(signal)} ({doing})")
        else:
            super().__init__(f"runner: exited with status {exit_status} ({doing})")


def _signal_name(number: int) -> str:
    try:
        return signals.Signals(number).name
    except ValueError:
        return f"signal {number}"
