"""The process that fuzzes one target: `python -m tests.fuzz.worker TARGET ARGUMENT ...`."""

from __future__ import annotations

import sys

import atheris


def main() -> None:
    """Fuzz with the arguments of libFuzzer; does not return."""
    name, *arguments = sys.argv[1:]
    with atheris.instrument_imports(include=["leadline_client", "leadline_common"]):
        from tests.fuzz.targets import TARGETS  # noqa: PLC0415  # instruments what this imports

    atheris.Setup([sys.argv[0], *arguments], TARGETS[name])
    atheris.Fuzz()


if __name__ == "__main__":
    main()
