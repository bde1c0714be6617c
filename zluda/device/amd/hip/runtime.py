"""The HIP runtime, called through hip-python.

hip-python loads ``libamdhip64.so`` at its first call, from ``ROCM_PATH``, a ``rocm-sdk`` wheel, or where the
system's loader finds it. Its functions return a tuple, the error first; handles and addresses pass as
integers.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import re
from typing import Any

from zluda.device.amd.hip.errors import cuda_result
from zluda.device.results import CudaError
from zluda.errors import DeviceError

NO_BINDING = "pip install 'zluda[hip]'"
NO_RUNTIME = (
    "install AMD's ROCm with its HIP runtime (Debian: libamdhip64-dev), or say where libamdhip64.so is by"
    " ROCM_PATH or LD_LIBRARY_PATH"
)
_NOT_READY = 600
_NEWEST_WITHOUT = 5  # the last major version that lacks what this program asks for beyond it
_LOADING, _SYMBOL = "failed to dlopen", "failed to dlsym"  # hip-python's words
# hipDeviceProp_t of HIP 4 and 5, which hip-python no longer describes: where gcnArchName is, and the size.
_OLD_ARCH_NAME, _OLD_PROPERTIES_BYTES = 396, 792
_ARCH_NAME = re.compile(r"gfx[0-9a-f]+(:(sramecc|xnack)[+-])*")


def version_of(number: int) -> tuple[int, int, int]:
    """Major, minor and patch of ``hipRuntimeGetVersion``'s number (``HIP_VERSION`` of hip_version.h)."""
    return number // 10_000_000, number // 100_000 % 100, number % 100_000


class Runtime:
    """HIP through the module ``hip.hip``. Raises DeviceError where there is none or no library for it."""

    def __init__(self, binding: Any) -> None:
        self.binding = binding
        self.version = version_of(int(self.call("hipRuntimeGetVersion")))

    @property
    def version_text(self) -> str:
        return ".".join(str(part) for part in self.version)

    def result(self, entry: str, *arguments: Any) -> tuple[int, Any]:
        """Call an entry; its ``hipError_t``, and what it returns (one value, a tuple of several, or None).

        Raises DeviceError where the library or the entry is not there.
        """
        function = getattr(self.binding, entry, None)
        if function is None:
            raise DeviceError("hip", f"hip-python does not have {entry}", remedy=NO_BINDING)
        try:
            error, *values = function(*arguments)
        except RuntimeError as failure:
            raise self._not_there(entry, str(failure)) from None
        return int(error), values[0] if len(values) == 1 else tuple(values) or None

    def call(self, entry: str, *arguments: Any) -> Any:
        """Call an entry; what it returns. CudaError, with HIP's own words, unless it succeeds."""
        error, value = self.result(entry, *arguments)
        if error:
            raise CudaError(cuda_result(error), entry, self.describe(error))
        return value

    def done(self, entry: str, *arguments: Any) -> bool:
        """Call a query; false for hipErrorNotReady."""
        error, _ = self.result(entry, *arguments)
        if error not in (0, _NOT_READY):
            raise CudaError(cuda_result(error), entry, self.describe(error))
        return error == 0

    def describe(self, error: int) -> str:
        """HIP's name of an error and its words: ``hipErrorNoDevice (100): no ROCm-capable device…``."""
        try:
            name = self.binding.hipError_t(error)
        except ValueError:  # of a runtime that knows more errors than the binding
            return f"hipError_t {error}"
        text = _text(self.result("hipGetErrorString", name)[1])
        return f"{name.name} ({error})" + (f": {text}" if text and text != name.name else "")

    def constant(self, kind: str, name: str) -> Any:
        """A member of one of HIP's enumerations."""
        return getattr(getattr(self.binding, kind), name)

    def attribute(self, name: str, device: int) -> int:
        """A ``hipDeviceAttribute_t`` by its name without the prefix; 0 for one that this runtime lacks."""
        attribute = self.constant("hipDeviceAttribute_t", f"hipDeviceAttribute{name}")
        error, value = self.result("hipDeviceGetAttribute", attribute, device)
        return 0 if error else int(value)

    def device_count(self) -> int:
        """0 where no GPU answers (hipErrorNoDevice)."""
        error, count = self.result("hipGetDeviceCount")
        return 0 if error else int(count)

    def product(self, device: int) -> str:
        """The GPU's marketing name."""
        return _text(self.call("hipDeviceGetName", 64, device))

    def architecture(self, device: int) -> str:
        """``gcnArchName``: the target id that code must be built for, ``gfx90a:sramecc+:xnack-``."""
        if self.version[0] > _NEWEST_WITHOUT:
            name = _text(self._properties(device).gcnArchName)
        else:
            name = self._old_architecture(device)
        if not _ARCH_NAME.fullmatch(name):
            told = f"HIP {self.version_text} calls its GPU {name!r}, which is no AMD target"
            raise DeviceError(f"hip:{device}", told)
        return name

    def _properties(self, device: int) -> Any:
        try:
            return self.call("hipGetDeviceProperties", device)
        except TypeError:  # hip-python 6 and 7: the caller brings the structure
            properties = self.binding.hipDeviceProp_t()
            self.call("hipGetDeviceProperties", properties, device)
            return properties

    def _old_architecture(self, device: int) -> str:
        """By the entry of HIP 5 itself, in the library that hip-python has loaded."""
        library = ctypes.CDLL(f"libamdhip64.so.{self.version[0]}")
        properties = ctypes.create_string_buffer(2 * _OLD_PROPERTIES_BYTES)
        error = library.hipGetDeviceProperties(properties, device)
        if error:
            raise CudaError(cuda_result(error), "hipGetDeviceProperties", self.describe(error))
        return properties.raw[_OLD_ARCH_NAME:].split(b"\0", 1)[0].decode(errors="replace")

    def _not_there(self, entry: str, failure: str) -> DeviceError:
        if _SYMBOL in failure:
            needs = f"needs HIP {_NEWEST_WITHOUT + 1} or later"
            return DeviceError("hip", f"{needs}: {entry} is not in HIP {self.version_text}")
        if _LOADING in failure:
            return DeviceError("hip", "libamdhip64.so cannot be loaded", remedy=NO_RUNTIME)
        return DeviceError("hip", f"{entry}: {failure}")


def _text(value: Any) -> str:
    """A C string as hip-python gives it: bytes, or an object of its own."""
    return value.split(b"\0", 1)[0].decode(errors="replace") if isinstance(value, bytes) else str(value)


@functools.cache
def load() -> Runtime:
    """The runtime, loaded once. Raises DeviceError where hip-python or libamdhip64 is missing."""
    try:
        binding = importlib.import_module("hip").hip  # a module in hip-python 6 and 7, another's alias since
    except (ImportError, AttributeError) as error:
        raise DeviceError("hip", f"hip-python cannot be imported: {error}", remedy=NO_BINDING) from None
    return Runtime(binding)
