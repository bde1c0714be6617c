"""One recorded launch by itself: on a device, as often as is wanted, also with other PTX in its module's
place.

``Stage`` holds the launch on one device; ``part_of`` gives the part of a module that a kernel needs. Searches
inside a launch (``values/``, ``reduce/``) stand on both.
"""

from __future__ import annotations

from zluda.isolate.alone.part import Part, part_of
from zluda.isolate.alone.stage import Outcome, Setting, Stage

__all__ = ["Outcome", "Part", "Setting", "Stage", "part_of"]
