"""AMD devices: code objects that run, on the built-in emulator.

Owns ``emulator/`` (machine code lifted to host code) and the device in front of it. May import
``zluda.compiler`` and ``zluda.device``'s protocol and memory. Code objects go in as bytes, device memory is
addressed by integers, as in :mod:`zluda.device.base`.
"""
