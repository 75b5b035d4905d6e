"""What changes that the controller makes for the v3 API have in common."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from leadline_broker.api.v3.errors import REFUSED, V3Error
from leadline_client.errors import InvalidRequest


@contextmanager
def refused_by_controller() -> Iterator[None]:
    """Turn the controller's objection to a value into a refusal (40002).

    The request itself was well-formed, because the model of its body has accepted it.
    """
    try:
        yield
    except InvalidRequest as error:
        raise V3Error(REFUSED, error.message) from error
