"""The agent that runs inside the application: ``staying.js`` comes first and stays in the
process, ``agent.js`` finds the driver and attaches, the C files record.

No Python code. ``zluda/trace/spec.py`` joins the C files, constants first, into the one source that Frida
compiles.
"""
