"""One service in the foreground: `python -m leadline_cli.service broker --set broker.id=1 …`.

`leadline up` starts its services with this module, which imports little: neither the table
printer nor the ZooKeeper server.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Final

from leadline_common.identity import UnusableCredentials
from leadline_common.settings import (
    BrokerSettings,
    ControllerSettings,
    CoordinatorSettings,
    ServiceSettings,
    SettingsError,
    load_settings,
)
from leadline_common.tcp_ports import CannotListen

EXIT_USAGE: Final = 2

_SETTINGS: Final[dict[str, type[ServiceSettings]]] = {
    "controller": ControllerSettings,
    "broker": BrokerSettings,
    "coordinator": CoordinatorSettings,
}


def run_service(kind: str, pairs: Sequence[str], config: Path | None) -> None:
    """Run a controller, a broker or a coordinator until it receives SIGINT or SIGTERM.

    `pairs` are settings as `name=value`; `config` is a TOML file of settings.

    Raises:
        SettingsError: a setting is unknown, missing or invalid; the message names it.
        CannotListen: the address is in use, or is not safe to listen on.
        UnusableCredentials: a file cannot be used; the message names it.

    """
    settings = load_settings(
        _SETTINGS[kind], flags=split_pairs(pairs), environment=os.environ, config=config
    )
    # Imported by name, so that a broker does not load the controller.
    import_module(f"leadline_{kind}.main").run(settings)


def split_pairs(pairs: Sequence[str]) -> dict[str, str]:
    """Return `name=value` pairs as a mapping.

    Raises:
        SettingsError: a pair has no `=`.

    """
    for pair in pairs:
        if "=" not in pair:
            raise SettingsError(f"--set takes name=value, not {pair!r}")
    return {name: value for name, _, value in (pair.partition("=") for pair in pairs)}


def main(argv: Sequence[str] | None = None) -> None:
    """Run the service that the arguments name."""
    parser = argparse.ArgumentParser(prog="python -m leadline_cli.service")
    parser.add_argument("kind", choices=sorted(_SETTINGS))
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--config", type=Path)
    arguments = parser.parse_args(argv)
    try:
        run_service(arguments.kind, arguments.set, arguments.config)
    except (SettingsError, CannotListen, UnusableCredentials) as problem:
        sys.stderr.write(f"{problem}\n")
        raise SystemExit(EXIT_USAGE) from None


if __name__ == "__main__":
    main()
