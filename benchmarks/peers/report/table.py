"""One run as a Markdown page: what was measured, medians with their spread, ratios."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from peers.report.document import Document
from peers.report.samples import Samples, ratio, shown

NOTES = """\
Every cell is the median of the rounds (min-max). A ratio is ours/peer: the median over the rounds
in which both had their turn. Both systems and their clients share the machine, so no figure is a
capacity. `kafka-sync` flushes every record before it acknowledges it (`flush.messages=1`), as
Leadline does; `kafka` is its default, which leaves that to the operating system. Kafka's brokers
speak plain TCP with each other, Leadline's TLS; so do Kafka's where the name has `+tls`. All
producers: acks=all, batches of 1 MB, 5 ms of lingering unless records are sent singly, idempotent
unless batches are made by hand. Groups have each system's own defaults: Kafka's coordinator waits
3 s for more members of a new group, and its members learn of a rebalance with their next heartbeat,
every 3 s. What is counted from a kill includes the timeout of the ZooKeeper session, which is the
same for both."""


def page(document: Document) -> str:
    """Return the page of one run."""
    parts = [
        f"# Leadline beside Kafka, {document.began[:10]}",
        _warning(document) + NOTES,
        _facts(document),
        table(document.samples),
    ]
    if document.failures:
        parts += ["## Failed", *(f"- {_one_line(failure)}" for failure in document.failures)]
    return "\n\n".join(parts) + "\n"


def table(samples: Iterable[Samples]) -> str:
    """Return a row for each figure of each peer, beside ours."""
    found = list(samples)
    ours = {one.key: one for one in found if one.is_ours}
    peers = [one for one in found if not one.is_ours]
    lines = ["| | unit | better | Leadline | peer | | ours/peer |", "|---|---|---|---|---|---|---|"]
    for key, own in ours.items():
        beside = [one for one in peers if one.key == key]
        lines += [_row(own, peer) for peer in beside] or [_row(own, None)]
    lines += [_row(None, peer) for peer in peers if peer.key not in ours]
    return "\n".join(lines)


def _row(own: Samples | None, peer: Samples | None) -> str:
    known = own or peer
    assert known is not None
    quotient = ratio(own, peer) if own and peer else None
    cells = [
        ": ".join(part for part in (known.work, known.metric.name) if part),
        known.metric.unit,
        "more" if known.metric.more_is_better else "less",
        _cell(own),
        _cell(peer),
        peer.side if peer else "",
        "" if quotient is None else f"**{quotient:.2f}**",
    ]
    return f"| {' | '.join(cells)} |"


def _cell(samples: Samples | None) -> str:
    if samples is None:
        return "-"
    spread = f" ({shown(min(samples.values))}-{shown(max(samples.values))})"
    return shown(samples.median) + (spread if len(samples.values) > 1 else "")


def _warning(document: Document) -> str:
    return "**A quick run: it shows that everything works, and no figure.**\n\n" * document.is_quick


def _facts(document: Document) -> str:
    return "\n".join(f"- {name}: {value}" for name, value in _rows(document))


def _rows(document: Document) -> Iterator[tuple[str, object]]:
    machine = document.machine
    yield "commit", f"{document.commit}; Kafka {document.kafka}, in ZooKeeper mode"
    yield "time", f"{document.began} to {document.ended} (UTC)"
    yield (
        "load average before / after",
        f"{_loads(document.load_before)} / {_loads(document.load_after)}",
    )
    yield "machine", f"{machine.cores} cores of {machine.processor}, {machine.memory_gib} GiB"
    yield "system", f"Linux {machine.kernel}, {machine.filesystem}, {machine.congestion_control}"
    yield "runtimes", f"Python {machine.python}, {machine.java}"


def _loads(values: tuple[float, ...]) -> str:
    return " ".join(f"{value:.1f}" for value in values)


def _one_line(text: str) -> str:
    return " ".join(text.split())[:300]
