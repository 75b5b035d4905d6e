"""The error tree: what is definite, what is unknown, and that callers can tell."""

from __future__ import annotations

import pytest

from leadline_common.zk.errors import (
    BadVersion,
    ConnectionLoss,
    MultiFailed,
    NodeError,
    NodeExists,
    NoNode,
    NotConnected,
    NotEmpty,
    OtherNodeError,
    SessionExpired,
    ZkError,
    node_error,
)


@pytest.mark.parametrize(
    ("code", "kind"), [(-101, NoNode), (-103, BadVersion), (-110, NodeExists), (-111, NotEmpty)]
)
def test_codes_have_classes(code: int, kind: type[NodeError]) -> None:
    error = node_error(code, "/a")
    assert type(error) is kind
    assert error.path == "/a"


def test_an_unknown_code_is_kept() -> None:
    error = node_error(-4711, "/a")
    assert isinstance(error, OtherNodeError)
    assert error.code == -4711
    assert "-4711" in str(error)


@pytest.mark.parametrize("definite", [NodeError, MultiFailed, SessionExpired])
def test_a_definite_failure_is_never_taken_for_an_unknown_outcome(definite: type) -> None:
    assert issubclass(definite, ZkError)
    assert not issubclass(definite, ConnectionLoss)


def test_not_sent_may_be_handled_as_unknown() -> None:
    assert issubclass(NotConnected, ConnectionLoss)
