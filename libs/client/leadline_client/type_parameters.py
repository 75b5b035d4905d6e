"""The types of keys and values, by which producers, consumers and records are generic.

Both are `bytes` where no serializer is given: a bare `Consumer` is a `Consumer[bytes, bytes]`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    # Defaults of type parameters are in `typing` from Python 3.13 on. Type checkers bring this
    # module; nothing has to be installed for it.
    from typing_extensions import TypeVar

    K = TypeVar("K", default=bytes)
    V = TypeVar("V", default=bytes)
    T = TypeVar("T", default=Any)
else:
    from typing import TypeVar

    K = TypeVar("K")
    V = TypeVar("V")
    T = TypeVar("T")
