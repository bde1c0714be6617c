"""Following processes into their forked children, and into the programs that they become.

A process that a recording has been in, and what is forked from it, connects (agent/execs.c): in a forked
child before `fork` returns there, to wait for an agent; anywhere before ``execve``, with the file that is
about to be executed. In the second case it is traced from then on, let go on, and, once it is the other
program, held at that program's first instruction, as a program that is started here is (hold.py). Then it is
the session's to attach to. Whatever becomes of the session, closing the connection lets it go on.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import select
import socket
import stat
import struct
import threading
import time
from pathlib import Path
from typing import Protocol

from zluda.errors import Error
from zluda.trace.hold import Seized
from zluda.trace.programs import seen_by

_CREDENTIALS = struct.Struct("3i")  # `struct ucred`: process, user, group (unix(7))
_FORKED, _EXECUTES = b"F", b"E"
_KINDS = (_FORKED, _EXECUTES)
_ANSWER = b"\0"
_MOST_BYTES = 1 << 16
_POLL_SECONDS = 0.002
_LAST_SECONDS = 30.0
_CHANGES_USER = stat.S_ISUID | stat.S_ISGID


class Session(Protocol):
    """Whom processes are followed for. Each method is called in a thread of its own."""

    def is_followed(self, pid: int) -> bool:
        """Whether what becomes of a process is of interest."""

    def take_forked(self, pid: int, parent: int) -> None:
        """A forked child waits until this returns."""

    def take_successor(self, successor: Successor) -> None:
        """A process has become another program, and is stopped; it is to be let go."""

    def unrecorded(self, pid: int, reason: str) -> None:
        """One cannot be followed."""


class Following:
    """Listens until it is closed; each process is served by a thread of its own."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.name = f"zluda-{os.getpid()}-{secrets.token_hex(8)}"
        """Of the socket, in Linux's abstract namespace."""
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(f"\0{self.name}")
        self._socket.listen(128)
        self._serving: set[threading.Thread] = set()
        self._closing = threading.Event()
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:  # closed
                return
            thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
            self._serving.add(thread)
            thread.start()
            self._serving = {one for one in self._serving if one.is_alive()}

    def close(self) -> None:
        """Children go on by themselves from now on. Those under way are waited for, but not for ever."""
        self._closing.set()
        self._socket.shutdown(socket.SHUT_RDWR)
        self._listener.join()
        self._socket.close()
        end = time.monotonic() + _LAST_SECONDS
        for thread in self._serving:
            thread.join(max(0.0, end - time.monotonic()))

    def is_closing(self) -> bool:
        """Whether children that are traced for longer are to be let go."""
        return self._closing.is_set()

    def _serve(self, connection: socket.socket) -> None:
        """A process. It waits for us; whatever becomes of this, closing the connection lets it go on."""
        # Its side is closed, or /proc has no such process, when it has been killed meanwhile.
        with connection, contextlib.suppress(ConnectionError, FileNotFoundError, ProcessLookupError):
            options = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
            pid = _CREDENTIALS.unpack(options)[0]
            kind, number, path = _told(connection)
            if not self._session.is_followed(pid):
                return
            if kind == _FORKED:
                self._session.take_forked(pid, number if _names_alike(pid) else _parent(pid))
                return
            try:
                self._follow(pid, number, path, connection)
            except Error as error:
                self._session.unrecorded(pid, f"{path}: {error}")

    def _follow(self, pid: int, thread: int, path: str, connection: socket.socket) -> None:
        if os.geteuid() != 0 and _changes_user(pid, path):  # traced by a user, it would not change
            raise Error("it runs as another user")
        process = Seized(pid, _thread(pid, thread))
        connection.sendall(_ANSWER)
        while not process.ended:
            said = _said(connection)
            if said:  # it could not be executed
                process.let_go()
                connection.sendall(_ANSWER)
                return
            if process.became_another(wait=said is not None):
                self._session.take_successor(Successor(process))
                return


class Successor:
    """What has become another program, and is stopped before the first instruction of its loader."""

    def __init__(self, process: Seized) -> None:
        self.process, self.pid = process, process.pid
        self.parent = _parent(self.pid)
        self.command = [
            os.fsdecode(part) for part in Path(f"/proc/{self.pid}/cmdline").read_bytes().split(b"\0")[:-1]
        ]

    def hold(self) -> None:
        """Let it go as far as the program's first instruction, and keep it there until :meth:`release`."""
        self.process.hold_at_entry()

    def release(self) -> None:
        """Let it run."""
        self.process.release()


def _said(connection: socket.socket) -> bytes | None:
    """What it has said within a moment; nothing where it was closed, as `execve` does; None: neither."""
    if not select.select([connection], [], [], _POLL_SECONDS)[0]:
        return None
    return connection.recv(1)


def _told(connection: socket.socket) -> tuple[bytes, int, str]:
    """What it says: `F` and its parent, or `E` and its thread; then the file; each up to a zero byte."""
    text = b""
    while text.count(b"\0") < 2:
        got = connection.recv(4096)
        if not got or len(text) > _MOST_BYTES:
            raise ConnectionResetError
        text += got
    head, path, *_ = text.split(b"\0")
    if head[:1] not in _KINDS or not head[1:].isdigit():
        raise ConnectionResetError  # none of ours
    return head[:1], int(head[1:]), os.fsdecode(path)


def _inner_name(directory: str) -> int:
    """A thread's id as the thread knows it (`pid_namespaces(7)`)."""
    for line in Path(directory, "status").read_text("utf-8", "replace").splitlines():
        if line.startswith("NSpid:"):
            return int(line.split()[-1])
    raise ProcessLookupError(directory)


def _names_alike(pid: int) -> bool:
    """Whether processes have the same ids where it is as here."""
    return _inner_name(f"/proc/{pid}") == pid


def _thread(pid: int, inner: int) -> int:
    """The thread of a process that knows itself by an id, by its id here."""
    for thread in [pid, *map(int, os.listdir(f"/proc/{pid}/task"))]:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended
            if _inner_name(f"/proc/{pid}/task/{thread}") == inner:
                return thread
    raise ProcessLookupError(pid)


def _changes_user(pid: int, path: str) -> bool:
    """Whether a file, as the process names it, runs as its owner or has capabilities (execve(2))."""
    seen = seen_by(pid, path)
    try:
        return bool(os.stat(seen).st_mode & _CHANGES_USER) or "security.capability" in os.listxattr(seen)
    except OSError:
        return False


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
