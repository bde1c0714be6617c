"""Spans of time as options."""

from __future__ import annotations

import math
from typing import Any

import click


class Seconds(click.types.FloatParamType):
    """A number of seconds above 0."""

    name = "seconds"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Fails, naming the option, for anything else, infinity and NaN included."""
        seconds = float(super().convert(value, param, ctx))
        if not 0 < seconds < math.inf:
            self.fail(f"{value} is not a number of seconds above 0", param, ctx)
        return seconds
