"""The errors of ZooKeeper operations, as one tree.

ZkError
|- NodeError                 the server refused; nothing was changed
|  |- NoNode
|  |- NodeExists
|  |- BadVersion
|  |- NotEmpty
|  |- NotPermitted           the session's user may not change the node
|  `- OtherNodeError         any other refusal, with ZooKeeper's code
|- MultiFailed               one operation was refused; none was applied
|- RequestTooLarge           refused by this client; nothing was sent
|- ConnectionLoss            outcome unknown (rule R7: re-read, then decide)
|  `- NotConnected           refused by this client; nothing was sent
`- SessionExpired            the session is over; its ephemeral nodes are deleted

Callers never see an exception of kazoo.
"""

from __future__ import annotations


class ZkError(Exception):
    """Any failure of a ZooKeeper operation."""


class NodeError(ZkError):
    """The server refused an operation on `path`; nothing was changed."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path


class NoNode(NodeError):
    """The node, or the parent of a node to create, does not exist."""


class NodeExists(NodeError):
    """The node to create exists already."""


class BadVersion(NodeError):
    """The node's data version is not the expected one."""


class NotEmpty(NodeError):
    """The node to delete has children."""


class NotPermitted(NodeError):
    """The node's ACL does not allow this session's user to do this."""

    def __str__(self) -> str:
        return f"{self.path}: its ACL does not let the user of zookeeper.credentials.file do this"


class OtherNodeError(NodeError):
    """Any other refusal; `code` is ZooKeeper's error code."""

    def __init__(self, path: str, code: int) -> None:
        super().__init__(path)
        self.code = code

    def __str__(self) -> str:
        return f"{self.path}: ZooKeeper error {self.code}"


class MultiFailed(ZkError):
    """A multi was refused as a whole: the operation at `index` failed with `error`."""

    def __init__(self, index: int, error: NodeError) -> None:
        super().__init__(f"operation {index}: {type(error).__name__} {error}")
        self.index = index
        self.error = error

    @property
    def is_race(self) -> bool:
        """Whether somebody else has changed a node meanwhile, so that reading again may help."""
        return isinstance(self.error, NoNode | NodeExists | BadVersion | NotEmpty)


class RequestTooLarge(ZkError):
    """The request is so large that the server would close the connection; it was not sent."""

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(f"request of {size} bytes; at most {limit} are sent")
        self.size = size
        self.limit = limit


class ConnectionLoss(ZkError):
    """The connection broke before the reply: the operation may or may not have been applied."""


class NotConnected(ConnectionLoss):
    """There is no connection; the operation was not sent."""


class SessionExpired(ZkError):
    """The session is over (expired, closed or refused); a ZkSession never starts another."""


_BY_CODE: dict[int, type[NodeError]] = {
    -101: NoNode,
    -102: NotPermitted,
    -103: BadVersion,
    -110: NodeExists,
    -111: NotEmpty,
}


def node_error(code: int, path: str) -> NodeError:
    """Return the error for ZooKeeper's error `code` on `path`."""
    known = _BY_CODE.get(code)
    return known(path) if known else OtherNodeError(path, code)
