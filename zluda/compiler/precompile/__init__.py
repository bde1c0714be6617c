"""Filling the kernel cache ahead of time: what there is to compile in files, and compiling all of it.

Owns the search for modules (``sources.py``) and the run (``run.py``), which compiles each kernel in a process
of its own. A trace names the kernels that were launched and their block shapes; of other files all kernels
are compiled.
"""
