"""The files of a service's TLS: used again when they change, and reported before they expire."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Protocol

import structlog

from leadline_common.http.app import ServiceApp
from leadline_common.http.internal_listener import InternalListener
from leadline_common.http.listeners import Listener
from leadline_common.http.public_tls import PublicTrust
from leadline_common.metrics import Metrics
from leadline_common.problems import Problem
from leadline_common.reloading import CHECK_INTERVAL_S, Reloaded

_REPORT_EVERY: Final = 3_600
"""Checks between two reports of a certificate in the log: an hour."""

logger = structlog.get_logger(__name__)


class _Files(Protocol):
    """Files that are used again when they change."""

    @property
    def files(self) -> Reloaded[Any]:
        """What they are now."""

    def reload_if_changed(self) -> None:
        """Use them if they have changed, and can be used."""


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """The files of a service's listeners, and of the authorities that it trusts."""

    public: Listener | None = None
    internal: InternalListener | None = None
    trust: PublicTrust | None = None

    def report_to(self, app: ServiceApp) -> None:
        """Show problems in `/readyz`, and ends and changes among the metrics."""
        app.checks.append(self.problems)
        if self.internal is not None:
            self.internal.report_to(app)
        if self.public is not None and self.public.tls is not None:
            tls = self.public.tls
            show_public_certificate_end(app.metrics, lambda: tls.ends_s)
        show_changes(app.metrics, [one.files for one in self._watched()])

    def problems(self) -> list[Problem]:
        """Return what is wrong with the public certificate and the trusted authorities."""
        tls = self.public.tls if self.public is not None else None
        return [
            *(tls.problems() if tls is not None else ()),
            *(self.trust.files.problems() if self.trust is not None else ()),
        ]

    async def watch(self) -> None:
        """Use files that change, and log every hour what is wrong with the certificates."""
        checks = 0
        while watched := self._watched():
            if checks % _REPORT_EVERY == 0:
                self._log_problems()
            checks += 1
            await asyncio.sleep(CHECK_INTERVAL_S)
            # In a thread: a file may be on a file system that does not answer.
            await asyncio.to_thread(_reload_changed, watched)

    def _log_problems(self) -> None:
        internal = self.internal.problems() if self.internal is not None else ()
        for problem in (*internal, *self.problems()):
            logger.warning("certificate", problem=problem.reason)

    def _watched(self) -> list[_Files]:
        found = (
            self.public.tls if self.public is not None else None,
            self.internal.tls if self.internal is not None else None,
            self.trust,
        )
        return [one for one in found if one is not None]


def show_public_certificate_end(metrics: Metrics, read: Callable[[], float]) -> None:
    """Add a gauge that `read` returns: the end of the public listener's certificate."""
    metrics.gauge_from(
        "public_certificate_not_after_timestamp_seconds",
        "When the certificate of the public listener, or one that it sends along, expires (Unix "
        "time). Only services with TLS for clients have it.",
        read,
    )


def show_changes(metrics: Metrics, watched: Iterable[Reloaded[Any]]) -> None:
    """Add metrics of the changes of files."""
    loads = metrics.gauge(
        "tls_files_loads",
        "How often files of TLS were loaded again because they had changed.",
        ("files",),
    )
    refused = metrics.gauge(
        "tls_files_refused",
        "1 while files of TLS have changed and cannot be used, so that the former ones are.",
        ("files",),
    )
    for files in watched:
        loads.labels(files.name).set_function(partial(getattr, files, "loads"))
        refused.labels(files.name).set_function(files.is_refused)


def _reload_changed(watched: list[_Files]) -> None:
    for one in watched:
        one.reload_if_changed()
