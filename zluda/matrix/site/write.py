"""A site into a directory."""

from __future__ import annotations

import shutil
from importlib import resources
from pathlib import Path

from zluda.errors import Error
from zluda.matrix.site import files, gather, pages
from zluda.matrix.site.gather import Sheet
from zluda.matrix.store import Store

_MARK = "matrix.json"


def write_site(store: Store, directory: Path, number: int) -> Sheet:
    """Write the site of run ``number``; ``index.html`` is where to begin. Gives what it tells.

    A site that is there is replaced. Raises :class:`Error` where the directory holds anything else, or cannot
    be written.
    """
    if directory.exists() and any(directory.iterdir()) and not (directory / _MARK).exists():
        raise Error(
            f"{directory}: holds other files than a site of zluda matrix; not replaced, choose another"
        )
    sheet = gather.gather(store, number)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name in ("programs", "replays"):
            shutil.rmtree(directory / name, ignore_errors=True)
            (directory / name).mkdir()
        files.write_files(sheet, directory)
        own = resources.files("zluda.matrix.site")
        for name in ("matrix.schema.json", "site.css", "site.js"):
            (directory / name).write_bytes(own.joinpath(name).read_bytes())
        for name, text in pages.render(sheet):
            (directory / name).write_text(text, "utf-8")
        for row in sheet.rows:
            for cell in row.cells.values():
                if cell.has_page:
                    (directory / pages.replay_page(cell)).write_text(store.page(cell.outcome), "utf-8")
    except OSError as error:
        raise Error(f"{directory}: {error.strerror or error}") from error
    return sheet
