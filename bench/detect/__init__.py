"""Seeded bugs, and what ``zluda isolate`` says of each (docs/detection.md)."""
