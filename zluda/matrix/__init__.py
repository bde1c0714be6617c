"""A corpus of traces over devices, night after night: run, keep, compare, show.

``programs.py`` finds traces, ``states.py`` names what a cell can come to, ``expectations.py`` what is known
to fail. ``night.py`` runs cells, each of them in a process (``cell.py``, watched by ``watching.py``);
``identity.py`` tells whether a verdict is known already. ``schema.py`` and ``store.py`` keep results in any
database that SQLAlchemy knows. ``changes.py`` compares two runs, ``speed.py`` finds what became slower,
``bisecting.py`` the commit that did it, and ``site/`` makes pages and files of it all.

May import ``corpus`` and what stands below it. docs/matrix.md is for those who use it.
"""
