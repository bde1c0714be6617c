"""Barriers (PTX ISA 9.7.13.1 to 9.7.13.4) and ``activemask`` (9.7.13.12)."""

from __future__ import annotations

import numpy as np

from zluda.device.interpreter.opcodes.warp import Table
from zluda.device.interpreter.registry import control, lane, warp
from zluda.device.interpreter.step import Step
from zluda.device.interpreter.values import Bits
from zluda.ptx.types import ScalarType

T = ScalarType


@control("barrier", "bar")
def barrier(s: Step) -> None:
    """9.7.13.1: ``sync``, ``arrive`` and ``red``."""
    if s.slot("kind") == "cluster" or s.has("cluster"):
        _of_cluster(s)
        return
    operands = s.inst.operands[1 if s.has("red") else 0 :]
    numbers = [s.value(operand, T.B32) for operand in (operands[:-1] if s.has("red") else operands)]
    number = numbers[0].astype(np.int64)
    expected = numbers[1].astype(np.int64) if len(numbers) > 1 else np.zeros(s.count, np.int64)
    machine = s.machine
    key = _key(s)
    if s.has("arrive"):
        machine.barriers.arrive(s, number, expected)
        machine.push((key[0], key[1], key[2] + 1), s.threads)
    elif s.has("red"):
        machine.barriers.wait(s, key, number, expected, s.value(operands[-1], T.PRED), _voted)
    else:
        machine.barriers.wait(s, key, number, expected, None, None)


def _key(s: Step) -> tuple[int, int, int]:
    return s.depth, s.frame.code.number, s.pc


def _voted(s: Step, threads: Bits, votes: Bits) -> None:
    """``bar.red``: what all threads voted."""
    results = {"popc": np.uint32(votes.sum()), "and": np.bool_(votes.all()), "or": np.bool_(votes.any())}
    found = results[s.slot("op")]
    s.write(np.full(s.count, found, found.dtype))


def _of_cluster(s: Step) -> None:
    """9.7.13.3: ``barrier.cluster.arrive`` and ``.wait``."""
    key = _key(s)
    if s.has("arrive"):
        s.machine.clusters.arrive(s.threads)
        s.machine.push((key[0], key[1], key[2] + 1), s.threads)
    else:
        s.machine.clusters.wait(s.threads, key)


@lane("activemask")
def activemask(s: Step) -> None:
    """9.7.13.12: the lanes that execute this together."""
    s.write(Table(s).mask(np.ones(s.count, np.bool_)))


@warp("bar.warp")
def bar_warp(s: Step) -> None:
    """9.7.13.2: ``bar.warp.sync`` is over when the lanes are here."""
