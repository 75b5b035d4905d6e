"""What both transports ask of a socket that is kept between requests."""

from __future__ import annotations

import select


def has_input(descriptor: int) -> bool:
    """Tell whether something waits to be read.

    Between requests nothing may arrive but the end of the connection.
    """
    poll = select.poll()  # `select` cannot watch descriptors above 1,023.
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))
