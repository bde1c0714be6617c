"""What the headers of CUDA's libraries do not say, written by hand; ``generate_library_api.py`` applies it.

A row that names no function or parameter of the headers is an error there. Patterns are those of a shell.
"""

from __future__ import annotations

# name: (headers, what every function returns, names of functions, files that hold it as a regular expression)
LIBRARIES = {
    "cuBLAS": (("cublas_v2.h",), "cublasStatus_t", "cublas[A-KM-Z]*", r"libcublas"),
    "cuBLASLt": (("cublasLt.h",), "cublasStatus_t", "cublasLt*", r"libcublasLt"),
    "cuFFT": (("cufft.h", "cufftXt.h"), "cufftResult", "cufft*", r"libcufft"),
    "cuRAND": (("curand.h",), "curandStatus_t", "curand*", r"libcurand"),
    "cuSPARSE": (("cusparse.h",), "cusparseStatus_t", "cusparse*", r"libcusparse"),
    "cuSOLVER": (
        ("cusolverDn.h", "cusolverSp.h", "cusolverRf.h"),
        "cusolverStatus_t",
        "cusolver*",
        r"libcusolver",
    ),
    "cuDNN": (("cudnn.h",), "cudnnStatus_t", "cudnn*", r"libcudnn"),
    "NCCL": (("nccl.h",), "ncclResult_t", "nccl*", r"libnccl"),
    "NVRTC": (("nvrtc.h",), "nvrtcResult", "nvrtc*", r"libnvrtc"),
    "nvJitLink": (("nvJitLink.h",), "nvJitLinkResult", "*nvJitLink*", r"libnvJitLink"),
}

# Scalars that a library takes by pointer, from the host or the device as the handle's pointer mode says:
# (function, parameter). What lies behind it is kept where the host can read it.
SCALARS = [
    ("cublas*", "alpha"),
    ("cublas*", "beta"),
    ("cublas*rot*", "c"),
    ("cublas*rot*", "s"),
    ("cublas*", "param"),
    ("cusparse*", "alpha"),
    ("cusparse*", "beta"),
    ("cusparseRot", "c_coeff"),
    ("cusparseRot", "s_coeff"),
    ("cudnn*", "alpha*"),
    ("cudnn*", "beta*"),
    ("cublasLtMatmul", "algo"),
]

UNTYPED_SCALAR_BYTES = 16
"""Of a ``const void *``: the largest type of a scalar is a complex number of two doubles."""

# Host arrays: (function, parameter, direction, parameter with the number of elements, bytes of one element or
# None for those of its type).
BUFFERS = [
    ("cublasLt*SetAttribute", "buf", "in", "sizeInBytes", 1),
    ("cufft*PlanMany*", "n", "in", "rank", None),
    ("cufft*PlanMany*", "inembed", "in", "rank", None),
    ("cufft*PlanMany*", "onembed", "in", "rank", None),
    ("cudnnSet*NdDescriptor*", "dimA", "in", "nbDims", None),
    ("cudnnSet*NdDescriptor*", "strideA", "in", "nbDims", None),
    ("cudnnSet*NdDescriptor*", "filterDimA", "in", "nbDims", None),
    ("cudnnSetConvolutionNdDescriptor", "padA", "in", "arrayLength", None),
    ("cudnnSetConvolutionNdDescriptor", "filterStrideA", "in", "arrayLength", None),
    ("cudnnSetConvolutionNdDescriptor", "dilationA", "in", "arrayLength", None),
    ("cudnnSetPoolingNdDescriptor", "windowDimA", "in", "nbDims", None),
    ("cudnnSetPoolingNdDescriptor", "paddingA", "in", "nbDims", None),
    # of handles, numbers and flags alike: eight bytes are the most that one takes
    ("cudnnBackendSetAttribute", "arrayOfElements", "in", "elementCount", 8),
    ("cusparse*SetAttribute", "data", "in", "dataSize", 1),
    ("ncclCommInitAll", "devlist", "in", "ndev", None),
    ("*nvJitLinkAddData*", "data", "in", "size", 1),
]

# Arrays of C strings: (function, parameter, parameter with their number).
STRINGS = [
    ("nvrtcCreateProgram", "headers", "numHeaders"),
    ("nvrtcCreateProgram", "includeNames", "numHeaders"),
    ("nvrtcCompileProgram", "options", "numOptions"),
    ("*nvJitLinkCreate*", "options", "numOptions"),
]

# Numbers that a call gives out in the host's memory: (function, parameter). Handles need no row.
OUTPUTS = [
    ("cublasGetVersion*", "version"),
    ("cublasLtMatmulAlgoGetHeuristic", "returnAlgoCount"),
    ("cufft*", "plan"),
    ("cufft*", "workSize"),
    ("cufftGetVersion", "version"),
    ("curandGetVersion", "version"),
    ("cusparse*_bufferSize", "bufferSize"),
    ("cusparseGetVersion", "version"),
    ("cusolver*_bufferSize", "lwork"),
    ("cusolver*_bufferSize", "workspaceInBytesOnDevice"),
    ("cusolver*_bufferSize", "workspaceInBytesOnHost"),
    ("cudnnGet*Size", "sizeInBytes"),
    ("ncclGetVersion", "version"),
    ("ncclCommCount", "count"),
    ("ncclCommUserRank", "rank"),
    ("ncclGetUniqueId", "uniqueId"),
    ("nvrtcVersion", "major"),
    ("nvrtcVersion", "minor"),
]

# What the recorder asks of a library when one of its functions has succeeded: the machine code and PTX that
# it made. function: pairs of functions, one for the size and one for the content, each of (handle, where to).
MADE = {
    "nvrtcCompileProgram": [
        ("nvrtcGetPTXSize", "nvrtcGetPTX"),
        ("nvrtcGetCUBINSize", "nvrtcGetCUBIN"),
        ("nvrtcGetLTOIRSize", "nvrtcGetLTOIR"),
    ],
    "nvJitLinkComplete": [
        ("nvJitLinkGetLinkedPtxSize", "nvJitLinkGetLinkedPtx"),
        ("nvJitLinkGetLinkedCubinSize", "nvJitLinkGetLinkedCubin"),
    ],
}
