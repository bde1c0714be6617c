"""The driver API over a device that runs translated code: CUDA's semantics, done here.

``state.py`` holds what all parts share (handle tables, the current context, the error that sticks); the
other modules each do one subject of the API and :class:`TranslatedDriver` is their sum.
"""

from __future__ import annotations

from zluda.device.base import Counting, Device, Perturbed
from zluda.device.cuda import CudaDevice
from zluda.driver.translated.boxes import BoxEntries
from zluda.driver.translated.code import CodeEntries
from zluda.driver.translated.contexts import ContextEntries
from zluda.driver.translated.launch import LaunchEntries
from zluda.driver.translated.services import ServiceEntries
from zluda.driver.translated.state import State
from zluda.driver.translated.streams import StreamEntries
from zluda.driver.translated.textures import TextureEntries
from zluda.driver.translated.together import TogetherEntries
from zluda.errors import DeviceError

__all__ = ["TranslatedDriver"]


class TranslatedDriver(
    ContextEntries,
    CodeEntries,
    BoxEntries,
    TextureEntries,
    StreamEntries,
    LaunchEntries,
    TogetherEntries,
    ServiceEntries,
):
    """:class:`zluda.driver.Driver` over ``device``, which it owns: ``close()`` closes it."""

    places_globals = True

    def __init__(self, device: Device) -> None:
        self.name, self.emulated, self.numerics = device.name, device.emulated, device.numerics
        self._state = State(device)
        self.product = self._state.gpu.product if self._state.gpu is not None else ""

    def recover(self) -> bool:
        """Forget the error of a failed kernel; false on a GPU, whose contexts do not outlive one."""
        if self._state.gpu is not None or isinstance(self._state.device, CudaDevice):
            return self._state.sticky is None
        self._state.sticky = None
        return True

    def perturb(self, share: float, pattern: int, seed: int) -> None:
        """Move approximate results, on a device of numerics ``"envelope"``; see ``CpuDevice.perturb``."""
        device = self._state.device
        if not isinstance(device, Perturbed):
            raise DeviceError(device.name, "its approximate instructions cannot be moved")
        device.perturb(share, pattern, seed)

    def start_counting(self) -> None:
        """Have an emulated GPU count what launches execute; others go on as they are."""
        if isinstance(self._state.device, Counting):
            self._state.device.counting = True

    def counted(self) -> tuple[int, int, int] | None:
        """What the last launch executed (:class:`zluda.device.base.Counting`), where it is counted."""
        device = self._state.device
        return device.counted if isinstance(device, Counting) else None

    def close(self) -> None:
        """Close the device and drop every handle."""
        if not self._state.closed:
            self._state.closed = True
            self._state.device.close()
