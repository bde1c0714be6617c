"""Static verdicts (``zluda check``): what of a file would not translate, or not replay, before anything runs.

``images`` chooses the modules of a file; ``forms`` tells apart the instructions of a module by their form, and
``verdicts`` has each form lowered once for each target; ``symbols`` reads what an executable imports, ``calls``
what a trace called; ``run`` brings all of a file together, as ``results`` has it. May import all below
``isolate``.
"""
