"""The CUDA driver API as an object.

Owns the :class:`Driver` protocol (one method a driver entry), its two implementations
(``translated.TranslatedDriver`` over a device, ``native.NativeDriver`` over libcuda) and ``driver_api.json``,
the table of every entry. May import ``zluda.device`` and what stands below it.

Data passes as Python values: handles and device addresses are integers, memory is bytes, a launch's
parameters are the packed ``.param`` buffer. Failures are :class:`CudaError`. A runner's driver is the same
protocol over a channel, so a player cannot tell the three apart.
"""

from zluda.driver.base import ENTRIES, Driver, LaunchAttribute, ParameterSlot
from zluda.driver.errors import RESULT_NAMES, CudaError

__all__ = ["ENTRIES", "RESULT_NAMES", "CudaError", "Driver", "LaunchAttribute", "ParameterSlot"]
