"""Programs that were recorded on an NVIDIA GPU, and how: recipes, recording them again, tags.

A program is a directory with a ``record.toml``, its source, and, where it is small enough, its ``trace.bin``.
"""

from zluda.corpus.recipe import Recipe, find_recipes, read_recipe
from zluda.corpus.tags import Tags, tags_of

__all__ = ["Recipe", "Tags", "find_recipes", "read_recipe", "tags_of"]
