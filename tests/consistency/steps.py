"""Steps of a process: its system calls that change a folder, also those of Rust, before one of which it is killed.

The process waits in each of them until a supervisor has decided, by seccomp's user notification.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import platform
import select
import struct
from contextlib import suppress
from multiprocessing import reduction
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

from tests.support.processes import LOST_SECONDS

_NUMBERS = {"x86_64": (317, (82, 83, 84, 86, 87, 258, 263, 264, 265, 316)), "aarch64": (277, (34, 35, 37, 38, 276))}
"""The numbers of `seccomp`, and of `rename`, `mkdir`, `rmdir`, `link`, `unlink` and their newer forms."""

is_supported: bool = platform.system() == "Linux" and platform.machine() in _NUMBERS

_LOAD, _IS_EQUAL, _RETURN, _ALLOW, _NOTIFY = 0x20, 0x15, 0x06, 0x7FFF0000, 0x7FC00000
_NO_NEW_PRIVILEGES, _SET_FILTER, _NEW_LISTENER = 38, 1, 8
_RECEIVE, _SEND, _CONTINUE = 0xC0502100, 0xC0182101, 1


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def report_steps(connection: Connection) -> None:
    """Lets the other side of the connection supervise this process, which must not have other threads yet."""
    seccomp, numbers = _NUMBERS[platform.machine()]
    tests = [(_IS_EQUAL, len(numbers) - i, 0, number) for i, number in enumerate(numbers)]
    instructions = [(_LOAD, 0, 0, 0), *tests, (_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _NOTIFY)]
    program = _Program(len(instructions), b"".join(struct.pack("HBBI", *it) for it in instructions))
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    listener = libc.syscall(seccomp, _SET_FILTER, _NEW_LISTENER, ctypes.byref(program))
    if listener < 0:
        raise OSError(ctypes.get_errno(), "seccomp")
    reduction.send_handle(connection, listener, os.getppid())
    os.close(listener)


def add_step(_: object) -> None:
    """Makes a step that changes nothing; an observer of remote calls."""
    with suppress(OSError):
        os.rmdir("")


def supervise(process: BaseProcess, connection: Connection, at: int) -> tuple[list[Any], int]:
    """Kills a process before a step; counted are those after its first message, before its second one.

    Returns:
        The messages, and the number of steps.
    """
    assert process.pid is not None
    listener, messages, steps = reduction.recv_handle(connection), list[Any](), 0
    poll = select.poll()
    poll.register(listener, select.POLLIN)
    poll.register(connection, select.POLLIN)
    try:
        while events := dict(poll.poll(LOST_SECONDS * 1000)):
            # What the process sent is older than the step in which it waits.
            while connection.poll():
                messages.append(connection.recv())
            if not events.get(listener, 0) & select.POLLIN:
                continue
            step = bytearray(80)
            fcntl.ioctl(listener, _RECEIVE, step)
            if len(messages) == 1:
                steps += 1
                if steps == at:
                    break
            fcntl.ioctl(listener, _SEND, struct.pack("QqiI", *struct.unpack_from("Q", step), 0, 0, _CONTINUE))
        else:
            raise TimeoutError(f"a process did nothing for {LOST_SECONDS:g} s")
    except (EOFError, ConnectionResetError):
        process.join()
        return messages, steps
    finally:
        process.kill()
        process.join()
        os.close(listener)
    return messages, steps
