"""Numbers as text for people: with fitting units and significant digits only."""

from __future__ import annotations

from datetime import UTC, datetime

NOTHING = "\u2013"
_UNITS = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000))


def duration(ms: float | None) -> str:
    """Return `12 ms`, `4.26 s`, `11 min 3 s`, `2 d 5 h`: two units at most."""
    if ms is None:
        return NOTHING
    if ms < 1_000:
        return f"{ms:.0f} ms"
    if ms < 60_000:
        return f"{ms / 1_000:.3g} s" if ms < 59_950 else "1 min"
    left = round(ms / 1_000) * 1_000
    for position, (unit, size) in enumerate(_UNITS):
        if left >= size:
            below, small = _UNITS[position + 1]
            rest = (left % size) // small
            return f"{left // size:.0f} {unit}" + (f" {rest:.0f} {below}" if rest else "")
    raise AssertionError("a duration of a second and more has a unit")


def size(number: float | None) -> str:
    """Return `812 B`, `24.7 MB`: decimal units, as disks and networks are sold."""
    if number is None:
        return NOTHING
    for unit in ("B", "kB", "MB", "GB"):
        if number < 999.5:
            return f"{number:.3g} {unit}"
        number /= 1_000
    return f"{number:.3g} TB"


def rate(bytes_per_s: float | None) -> str:
    """Return `3.1 MB/s`."""
    return NOTHING if bytes_per_s is None else f"{size(bytes_per_s)}/s"


def share(part: float | None) -> str:
    """Return a percentage with all its nines and one more digit; 100 % only for exactly 1.

    `98.1 %`, `99.93 %`, `99.99987 %`.
    """
    if part is None:
        return NOTHING
    if part >= 1:
        return "100 %"
    digits = 1
    while digits < 6 and (1 - part) * 100 < 10 ** (1 - digits):
        digits += 1
    lost = 10**-digits
    return f"{min(part * 100, 100 - lost):.{digits}f} %"


def count(number: float | None) -> str:
    """Return `1,204`, with a thin space instead of the comma."""
    return NOTHING if number is None else f"{number:,.0f}".replace(",", "\u2009")


def moment(ms: int | None, *, with_date: bool = True) -> str:
    """Return a time in UTC: `2026-11-21 07:15:04`."""
    if ms is None:
        return NOTHING
    return datetime.fromtimestamp(ms / 1_000, UTC).strftime(
        "%Y-%m-%d %H:%M:%S" if with_date else "%H:%M:%S"
    )


def plural(number: int, one: str, many: str | None = None) -> str:
    """Return `1 failover`, `3 failovers`, `no failover`."""
    if number == 0:
        return f"no {one}"
    return f"1 {one}" if number == 1 else f"{count(number)} {many or one + 's'}"
