"""A night as pages and files: what changed first, the matrix, a page a program, features, trends.

``gather.py`` asks the store and gives a :class:`~zluda.matrix.site.gather.Sheet`, from which ``as_json.py``
makes ``matrix.json`` (``matrix.schema.json`` is its schema), ``files.py`` the other files, ``pages.py`` the
HTML, with ``templates/`` and pictures by ``drawing.py``.
"""

from zluda.matrix.site.write import write_site

__all__ = ["write_site"]
