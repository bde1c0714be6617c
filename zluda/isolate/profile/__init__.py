"""Where a replay's time went: ``zluda replay --profile``.

``peaks.py`` holds what GPUs can do, ``model.py`` what a launch would take that was only emulated;
``facts.py`` gathers what is known of each kernel, ``rules.py`` says which limit binds and what to do;
``run.py`` puts them together to what ``zluda/report/profile.py`` shows. docs/profile.md has the rules.
"""

from __future__ import annotations

from zluda.isolate.profile.run import profile

__all__ = ["profile"]
