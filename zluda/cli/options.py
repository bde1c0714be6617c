"""Options that several verbs take."""

from __future__ import annotations

import click

dtypes = click.option(
    "--dtype",
    "dtypes",
    multiple=True,
    metavar="KERNEL:PARAM=TYPE",
    help="What a buffer holds, as in 'softmax:2=bf16': kernel by regex, parameter by number or name.",
)
