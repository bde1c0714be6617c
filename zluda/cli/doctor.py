"""`zluda doctor`: is this machine fit, and if not what to install."""

from __future__ import annotations

import json
import sys

import click


@click.command(name="doctor")
@click.option("--env", "environment", is_flag=True, help="List the environment variables instead.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(environment: bool, as_json: bool) -> None:
    """Say what this machine has for each kind of device, and the fix for each fault.

    Exits 0 where traces can be replayed on the CPU at least, 2 where not.

    Example: zluda doctor --json
    """
    if environment:
        from zluda import config

        variables = config.variables()
        if as_json:
            print(json.dumps([variable.as_dict() for variable in variables]))
        else:
            print("\n".join(line for variable in variables for line in variable.lines()))
        return
    from zluda.live.doctor import examine

    report = examine()
    if as_json:
        print(json.dumps(report.to_json()))
    else:
        print("\n".join(report.lines()))
    sys.exit(report.exit_status)
