"""Textures and surfaces: how they lie in device memory, and what an NVIDIA GPU computes of them.

``layout`` is the descriptor that compiled code reads and drivers write, and the table from a program's
handles to descriptors; it needs no numpy. May import nothing of zluda but ``errors``.
"""

ROOT_VARIABLE = "__zluda_textures"
"""The module variable that holds the root's address, in modules that use textures or surfaces."""
