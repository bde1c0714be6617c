"""Exact models of NVIDIA's approximate units.

``tables`` holds the coefficients, ``mufu`` the reference model over numpy arrays of bit patterns. The same
model as vector LLVM IR, which is what kernels run, is :mod:`zluda.compiler.lower.mufu`; both are held to
hashes of an H200's own outputs over all 2^32 inputs (``make check-mufu``). May import nothing of zluda
but ``errors``.
"""
