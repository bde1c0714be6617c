"""Benchmarks: ``python -m bench`` runs all of them; a module runs alone, too
(``python -m bench.startup``).
"""
