"""Texture and surface instructions (PTX ISA 9.7.10, 9.7.11) as calls of functions in PTX.

Sampling is software: ``textures.cu``, compiled to ``textures.ptx`` by ``make services``, is put behind the
text of a module that uses textures (:data:`INSTRUCTION`), and :mod:`~zluda.compiler.textures.expand` makes
each such instruction a call. So they are compiled like any other function, for every target, and the compiler
below never sees them. May import ``ptx`` and ``errors``.
"""

from __future__ import annotations

import re

INSTRUCTION = re.compile(r"\b(?:tex|tld4|txq|suld|sust|sured|suq|istypep)\s*\.")
"""What the text of a module that uses textures or surfaces has in it."""
