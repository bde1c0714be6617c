"""What runs on this machine, and whether it can.

Owns ``doctor/``: is this machine fit, and if not what to install. May import everything below ``zluda.cli``.
"""
