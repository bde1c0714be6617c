"""A command line as it was typed, for what it made."""

from __future__ import annotations

import shlex

import click
from click.core import ParameterSource


def as_typed(context: click.Context) -> str:
    """The command line, in full names of options, as a POSIX shell takes it."""
    words = ["zluda", str(context.info_name)]
    for option in context.command.params:
        if (
            option.name is None
            or context.get_parameter_source(option.name) is not ParameterSource.COMMANDLINE
        ):
            continue
        value = context.params[option.name]
        values = value if isinstance(value, tuple) else (value,)
        name = [] if isinstance(option, click.Argument) else [max(option.opts, key=len)]
        flag = isinstance(option, click.Option) and option.is_flag
        words += [*name] if flag else [word for one in values for word in (*name, str(one))]
    return shlex.join(words)
