"""``python -m zluda.runner``: the runner process, started by ``zluda.runner.start`` and of no use by hand."""

import sys

from zluda.runner.far import main

sys.exit(main(sys.argv[1:]))
