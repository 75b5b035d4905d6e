"""Producing records one by one: each client waits for one before it sends the next."""

from __future__ import annotations

from peers.sequences.case import ASYNCHRONOUS, Case, request_rate, work
from peers.sequences.sizes import Sizes

CLIENTS = {1: 1, 16: 3, 64: 6}
"""How many clients there are, and how many times the records of one they send together."""


def cases(sizes: Sizes) -> list[Case]:
    """Return a case for each number of clients."""
    return [
        Case(
            "single",
            f"single records, {clients} at once",
            "send_singly",
            work(sizes.single_records * times, 100, clients=clients),
            request_rate,
            ASYNCHRONOUS,
        )
        for clients, times in CLIENTS.items()
    ]
