"""Recording a program on an NVIDIA host: the Frida agent, the session that gets it in, the drain's process.

Owns ``agent/`` (what runs inside the program: JavaScript and C), ``spec`` (the table of driver functions as
the agent wants it), ``application``, ``parent`` and ``hold`` (starting the program, in a process
that is its parent, and holding it), ``session`` (one run of ``zluda trace``),
``recording`` (one recorded process), ``drain_process`` (the process beside it) and ``images`` (what is in a
module image). May import everything below it; nothing imports it but the command line. Data passes from the
agent through the rings of :mod:`zluda.tracefile.ring` into the trace file; the session carries words only.
``docs/recording.md`` is the whole as prose.
"""
