"""Where a fault lies: the static preflight (``check/``), and searches for the layer, the instruction and the
smallest case.
"""
