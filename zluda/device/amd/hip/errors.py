"""HIP's errors as CUDA's driver has them.

``hipError_t`` takes most of its numbers from ``CUresult`` (hip_runtime_api.h); those below are numbers of the
CUDA runtime's ``cudaError`` or HIP's own.
"""

from __future__ import annotations

from zluda.device.results import RESULT_NAMES

_OTHERS = {
    9: "CUDA_ERROR_INVALID_VALUE",  # hipErrorInvalidConfiguration
    12: "CUDA_ERROR_INVALID_VALUE",  # hipErrorInvalidPitchValue
    13: "CUDA_ERROR_NOT_FOUND",  # hipErrorInvalidSymbol
    17: "CUDA_ERROR_INVALID_VALUE",  # hipErrorInvalidDevicePointer
    21: "CUDA_ERROR_INVALID_VALUE",  # hipErrorInvalidMemcpyDirection
    35: "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",  # hipErrorInsufficientDriver
    52: "CUDA_ERROR_INVALID_VALUE",  # hipErrorMissingConfiguration
    53: "CUDA_ERROR_LAUNCH_FAILED",  # hipErrorPriorLaunchFailure
    98: "CUDA_ERROR_INVALID_HANDLE",  # hipErrorInvalidDeviceFunction
    218: "CUDA_ERROR_INVALID_IMAGE",  # hipErrorInvalidKernelFile: no PTX reaches HIP
    1052: "CUDA_ERROR_OUT_OF_MEMORY",  # hipErrorRuntimeMemory
}


def cuda_result(error: int) -> int | str:
    """The ``CUresult``, by number or name, of a ``hipError_t``."""
    if error in _OTHERS:
        return _OTHERS[error]
    return error if error in RESULT_NAMES else "CUDA_ERROR_UNKNOWN"
