"""Static verdicts (``zluda check``): what of a file would not translate or replay, before anything runs.

``images`` finds the modules of a file, in archives and directories too; ``verdicts`` has each form of
instruction lowered once for each target; ``symbols`` reads what an executable imports, ``calls`` what a trace
called; ``run`` brings all of a file together, as ``results`` has it, and ``words`` and ``sarif`` write that
down. May import all below ``isolate``.
"""
