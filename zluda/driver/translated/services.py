"""Device services behind the driver: tables for the modules loaded, and what kernels printed.

CUDA empties the printf buffer at a launch, where the host waits for the device, at copies that block, and
when modules come and go (CUDA C++ Programming Guide, "Formatted Output"). So do those
entries here; the text waits for :meth:`ServiceEntries.take_output`.
"""

from __future__ import annotations

from zluda.device.output import Output
from zluda.device.services import ASSERTED
from zluda.driver.errors import CudaError
from zluda.driver.translated.state import State
from zluda.errors import LaunchError

_MOST_TEXT = 64 << 20  # characters kept for a caller that never asks


class ServiceEntries:
    """What a caller of the driver asks beside CUDA's entries."""

    _state: State

    def take_output(self) -> tuple[str, str]:
        """What kernels printed since the last time and CUDA would show by now; what is said of losses."""
        state = self._state
        text, state.printed = "".join(state.printed), []
        complaint, state.print_complaint = state.print_complaint, ""
        return text, complaint


def check_output(state: State) -> None:
    """After the host waited for the device: empty the buffer; the error of a kernel whose assertion failed.

    Where a failing kernel does not end by itself, on a GPU whose runtime would not outlive that, this is
    where it shows.
    """
    failed = flush(state)
    if failed:
        launch = LaunchError(f"{ASSERTED}: {failed}")
        raise CudaError("CUDA_ERROR_ASSERT", detail=str(launch), launch=launch)


def flush(state: State) -> str:
    """Empty the printf buffer; the message of an assertion that failed."""
    output = state.services.take_output()
    _keep(state, output)
    return output.failed


def _keep(state: State, output: Output) -> None:
    if output.text and sum(map(len, state.printed)) < _MOST_TEXT:
        state.printed.append(output.text)
    state.print_complaint = output.complaint or state.print_complaint
