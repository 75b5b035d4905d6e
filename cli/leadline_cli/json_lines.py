"""JSON documents, one per line, with file descriptors, over a Unix stream socket."""

from __future__ import annotations

import json
import socket
from array import array
from collections.abc import Sequence
from typing import Any, Final

_CHUNK_BYTES: Final = 65_536
_MOST_FDS: Final = 16
_FD_TYPE: Final = "i"


class JsonLines:
    """One end of a connected stream socket, which this owns.

    Received file descriptors are the caller's, in the order in which they were sent. They are not
    inherited by programs that are executed.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._received = b""
        self._fds: list[int] = []

    def fileno(self) -> int:
        """Return the file descriptor of the socket; -1 when it is closed."""
        return self._socket.fileno()

    def close(self) -> None:
        """Close this end."""
        self._socket.close()

    def send(self, document: Any, fds: Sequence[int] = ()) -> None:
        """Send a document and file descriptors.

        Raises:
            OSError: the other end is closed, or this one is.

        """
        line = json.dumps(document).encode() + b"\n"
        sent = socket.send_fds(self._socket, [line], fds) if fds else 0
        self._socket.sendall(line[sent:])

    def receive(self) -> tuple[list[Any], bool]:
        """Return the documents that have come, and whether the stream is at its end.

        This does not wait for any.
        """
        at_end = False
        while not at_end:
            try:
                # socket.recv_fds ignores its flags, and so would wait.
                data, ancillary, _, _ = self._socket.recvmsg(
                    _CHUNK_BYTES,
                    socket.CMSG_SPACE(_MOST_FDS * array(_FD_TYPE).itemsize),
                    socket.MSG_DONTWAIT | socket.MSG_CMSG_CLOEXEC,
                )
            except BlockingIOError:
                break
            except OSError:
                data, ancillary = b"", []
            self._received += data
            for _, _, content in ancillary:
                self._fds += array(_FD_TYPE, content)
            at_end = not data
        *lines, self._received = self._received.split(b"\n")
        return [json.loads(line) for line in lines], at_end

    def take_fds(self, count: int) -> list[int]:
        """Return the next file descriptors that were received."""
        taken, self._fds = self._fds[:count], self._fds[count:]
        return taken
