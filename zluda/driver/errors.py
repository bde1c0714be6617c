"""The driver's failures: ``CUresult`` names and :class:`CudaError`."""

from zluda.device.results import RESULT_NAMES, CudaError

__all__ = ["RESULT_NAMES", "CudaError"]
