"""Damaged traces: a replay ends in a result or in an error of ours, whatever a field holds."""

from __future__ import annotations

import random
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from kernels import LAYOUT, MODULE, add, added, parameters, ramp
from replay_case import Case

import zluda
from zluda.diff.results import ReplayResult
from zluda.errors import Error

COUNT = 40
SIZE = 4 * COUNT
NUMBERS = (0, 1, -1, 17, 2**40, 2**62, -(2**63), 2**63 - 1)


@pytest.fixture
def sound(case: Case) -> Path:
    record = case.record
    record.start()
    kernel = record.function(record.module(MODULE), "add", LAYOUT)
    x, y = record.allocate(SIZE), record.allocate(SIZE)
    record.copy_in(x, ramp(COUNT))
    record.fill(y, 0x3F800000, COUNT)
    for _ in range(2):
        total = added(record.read(x, SIZE), record.read(y, SIZE))
        record.launch(kernel, parameters(x, y, COUNT), {x: total}, stream=0)
    record.copy_within(y, x, SIZE)
    record.copy_out(y, SIZE)
    record.free(x)
    record.__exit__()
    return case.path


def damage(path: Path, chance: random.Random) -> None:
    """Change one to three values of a trace's tables."""
    with closing(sqlite3.connect(path)) as connection:
        tables = [
            name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        ]
        for _ in range(chance.randint(1, 3)):
            table = chance.choice(tables)
            column = chance.choice([row[1] for row in connection.execute(f"PRAGMA table_info({table})")])
            values = [value for (value,) in connection.execute(f"SELECT {column} FROM {table}")]
            if not values:
                continue
            old = chance.choice(values)
            try:
                connection.execute(
                    f"UPDATE {table} SET {column} = ? WHERE {column} IS ?", (changed(old, chance), old)
                )
            except sqlite3.Error:
                continue  # a key that is taken, or no number where one belongs: the schema's own guard
        connection.commit()


def changed(value: object, chance: random.Random) -> object:
    if isinstance(value, int):
        return chance.choice([*NUMBERS, min(value + 1, 2**63 - 1), chance.getrandbits(40)])
    if isinstance(value, bytes):
        data = bytearray(value[: chance.randint(0, len(value))] if chance.random() < 0.3 else value)
        for _ in range(min(len(data), 3)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        return bytes(data)
    return chance.choice(["", "[]", "null", "[[1, 2]]", f"{value}x"])


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_any_damage_ends_in_a_result_or_an_error_of_ours(case: Case, sound: Path, tmp_path: Path) -> None:
    case._use({"add": add})
    damaged = tmp_path / "damaged.bin"
    results = errors = 0
    for seed in range(100):
        shutil.copy(sound, damaged)
        damage(damaged, random.Random(seed))
        try:
            result = zluda.replay(damaged, device="cpu", output=tmp_path / "kept.bin")
        except Error as error:
            errors += 1
            assert "\n" not in str(error), seed
        else:
            results += 1
            assert isinstance(result, ReplayResult)
    assert results > 15 and errors > 15  # both ways are walked
