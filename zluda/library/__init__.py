"""CUDA's libraries, one level above the driver: which functions they have, and what their arguments mean."""
