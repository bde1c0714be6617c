"""What the filter of a GPU's runner lets through beside computing: decided by executing the filter."""

from __future__ import annotations

import os

import pytest

from zluda.runner.confine import filter_program

ALLOW, REFUSE, KILL = 0x7FFF0000, 0x00050000 | 13, 0x80000000
ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
PID = 4321

KFD_WAIT_EVENTS, DRM_MAP, TIOCSTI, FIONREAD = 0xC0184B0C, 0xC0106444, 0x5412, 0x541B


def decide(machine: str, number: int, *arguments: int, gpu: bool = True) -> int:
    """The filter's answer: classic BPF over ``struct seccomp_data``."""
    words = [number, ARCHITECTURES[machine], 0, 0]
    for argument in (*arguments, 0, 0, 0, 0, 0, 0)[:6]:
        words += [argument & 0xFFFFFFFF, argument >> 32]
    program, at, accumulator = filter_program(machine, PID, gpu=gpu), 0, 0
    while True:
        code, if_true, if_false, constant = program[at]
        at += 1
        match code:
            case 0x20:
                accumulator = words[constant // 4]
            case 0x54:
                accumulator &= constant
            case 0x74:
                accumulator >>= constant
            case 0x06:
                return constant
            case _:
                tests = {0x15: accumulator == constant, 0x35: accumulator >= constant}
                taken = tests.get(code, bool(accumulator & constant))
                at += if_true if taken else if_false


@pytest.mark.parametrize(("machine", "openat"), [("x86_64", 257), ("aarch64", 56)])
class TestFiles:
    def test_are_opened_to_read(self, machine: str, openat: int) -> None:
        assert decide(machine, openat, 0, 0, os.O_RDONLY | os.O_CLOEXEC) == ALLOW

    @pytest.mark.parametrize("flag", [os.O_WRONLY, os.O_RDWR, os.O_CREAT, os.O_TRUNC])
    def test_and_for_nothing_else(self, machine: str, openat: int, flag: int) -> None:
        assert decide(machine, openat, 0, 0, flag) == REFUSE

    def test_not_on_other_devices(self, machine: str, openat: int) -> None:
        assert decide(machine, openat, 0, 0, os.O_RDONLY, gpu=False) == REFUSE


def test_the_old_open_has_its_flags_elsewhere() -> None:
    assert decide("x86_64", 2, 0, os.O_RDONLY) == ALLOW
    assert decide("x86_64", 2, 0, os.O_RDWR) == REFUSE


@pytest.mark.parametrize(("machine", "ioctl"), [("x86_64", 16), ("aarch64", 29)])
class TestIoctl:
    @pytest.mark.parametrize("command", [KFD_WAIT_EVENTS, DRM_MAP])
    def test_speaks_to_gpu_drivers(self, machine: str, ioctl: int, command: int) -> None:
        assert decide(machine, ioctl, 5, command) == ALLOW

    @pytest.mark.parametrize("command", [TIOCSTI, FIONREAD])
    def test_and_to_no_terminal(self, machine: str, ioctl: int, command: int) -> None:
        assert decide(machine, ioctl, 0, command) == REFUSE

    def test_not_on_other_devices(self, machine: str, ioctl: int) -> None:
        assert decide(machine, ioctl, 5, KFD_WAIT_EVENTS, gpu=False) == REFUSE


@pytest.mark.parametrize(
    ("machine", "number"),
    [
        ("x86_64", 41),  # socket
        ("x86_64", 42),  # connect
        ("x86_64", 59),  # execve
        ("x86_64", 57),  # fork
        ("x86_64", 101),  # ptrace
        ("x86_64", 62),  # kill
        ("x86_64", 87),  # unlink
        ("x86_64", 82),  # rename
        ("x86_64", 437),  # openat2
        ("x86_64", 425),  # io_uring_setup
        ("aarch64", 198),  # socket
        ("aarch64", 221),  # execve
        ("aarch64", 35),  # unlinkat
    ],
)
def test_the_rest_stays_refused(machine: str, number: int) -> None:
    assert decide(machine, number) == REFUSE


def test_another_architecture_ends_the_process() -> None:
    program = filter_program("x86_64", PID, gpu=True)
    assert program[1] == (0x15, 1, 0, ARCHITECTURES["x86_64"]) and program[2][3] == KILL


def test_computing_is_as_elsewhere() -> None:
    for number in (0, 1, 9, 202):  # read, write, mmap, futex
        assert decide("x86_64", number) == decide("x86_64", number, gpu=False) == ALLOW
