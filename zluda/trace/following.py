"""Following children that have no agent into the programs that they become.

Such a child (of ``vfork``, ``posix_spawn``, a bare ``clone``) connects before its ``execve`` and says which
file it is about to execute (agent/execs.c). It is traced from then on, let go on, and, once it is the other
program, held at that program's first instruction, as a program that is started here is (hold.py). Then it is
the session's to attach to.
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
from collections.abc import Callable
from pathlib import Path

from zluda.errors import Error
from zluda.trace.hold import Seized
from zluda.trace.programs import seen_by

_CREDENTIALS = struct.Struct("3i")  # `struct ucred`: process, user, group (unix(7))
_ANSWER = b"\0"
_POLL_SECONDS = 0.002
_LAST_SECONDS = 30.0
_CHANGES_USER = stat.S_ISUID | stat.S_ISGID


class Following:
    """Listens for children until it is closed; each is served by a thread of its own."""

    def __init__(self, take: Callable[[Successor], None], unrecorded: Callable[[int, str], None]) -> None:
        """``take`` is called with each child that has become another program, and is stopped; it lets it go.
        ``unrecorded`` gets the process id of one that cannot be followed, and why.
        """
        self._take, self._unrecorded = take, unrecorded
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
        """A child. It waits for us; whatever becomes of this, closing the connection lets it go on."""
        # Its side is closed, or /proc has no such process, when it has been killed meanwhile.
        with connection, contextlib.suppress(ConnectionError, FileNotFoundError, ProcessLookupError):
            options = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
            pid = _CREDENTIALS.unpack(options)[0]
            path = os.fsdecode(_text(connection))
            try:
                self._follow(pid, path, connection)
            except Error as error:
                self._unrecorded(pid, f"{path}: {error}")

    def _follow(self, pid: int, path: str, connection: socket.socket) -> None:
        if os.geteuid() != 0 and _changes_user(pid, path):  # traced by a user, it would not change
            raise Error("it runs as another user")
        process = Seized(pid)
        connection.sendall(_ANSWER)
        while not process.ended:
            said = _said(connection)
            if said:  # it could not be executed
                process.let_go()
                connection.sendall(_ANSWER)
                return
            if process.became_another(wait=said is not None):
                self._take(Successor(process))
                return


class Successor:
    """A child that has become another program, and is stopped before the first instruction of its loader."""

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


def _text(connection: socket.socket) -> bytes:
    """What it says, up to a zero byte."""
    text = b""
    while not text.endswith(b"\0"):
        got = connection.recv(4096)
        if not got:
            raise ConnectionResetError
        text += got
    return text[:-1]


def _changes_user(pid: int, path: str) -> bool:
    """Whether a file, as the process names it, runs as its owner or has capabilities (execve(2))."""
    seen = seen_by(pid, path)
    try:
        return bool(os.stat(seen).st_mode & _CHANGES_USER) or "security.capability" in os.listxattr(seen)
    except OSError:
        return False


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
