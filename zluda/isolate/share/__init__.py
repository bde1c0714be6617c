"""A small trace of what went wrong, to send to somebody (``zluda share``): the launch and its neighbours.

``run`` finds, cuts, confirms and strips; ``preview`` reads what the new file holds of the sender's data;
``words`` writes that down, and the Markdown block for a bug report. May import all below ``isolate``.
"""
