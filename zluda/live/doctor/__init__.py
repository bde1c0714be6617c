"""``zluda doctor``: what this machine has for each kind of device, and the fix for each fault.

Owns the checks, one module a subject: ``host.py`` (Python, LLVM, cache, tools), ``amd.py`` and ``nvidia.py``
(kernel drivers, devices, runtimes); ``machine.py`` is what they look at, ``report.py`` what they add up to.
A check reads files and versions and changes nothing.
"""

from __future__ import annotations

from zluda.live.doctor.report import Report, examine

__all__ = ["Report", "examine"]
