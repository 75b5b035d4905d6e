"""Work for threads at the end of the process.

Python's pools of threads take no work from the moment at which the main thread has ended. Handlers
of `atexit` run after that, and may close a producer that has records to send.
"""

from __future__ import annotations


def is_ending(refusal: RuntimeError) -> bool:
    """Tell whether a pool refused work because it was shut down, as all are at the end.

    It has another reason if no thread can be started: the work may be done later then.
    """
    return "shutdown" in str(refusal)
