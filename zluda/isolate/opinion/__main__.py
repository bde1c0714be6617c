"""``python -m zluda.isolate.opinion TARGET INSTRUCTION…``: what the pseudo-code says of them, as JSON."""

from __future__ import annotations

import json
import sys

from zluda.errors import Error, LaunchError
from zluda.isolate.opinion.instructions import disagreements, told_of


def main() -> int:
    target, *names = sys.argv[1:]
    try:
        told = told_of(target, names)
        try:
            wrong = disagreements(target, told)
        except LaunchError as error:  # of a kernel that is as it should be
            wrong = [f"a kernel of single instructions failed: {error}"]
    except Error as error:
        print(error, file=sys.stderr)
        return 1
    print(json.dumps({"told": told, "wrong": wrong}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
