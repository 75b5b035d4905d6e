"""The ZooKeeper server of one host of a cluster: `python -m leadline_cli.host_zookeeper zoo.cfg`.

It is the server of pip-installed files (`embedded_zookeeper`), with the settings that `leadline
cluster init` wrote. This process is replaced with the server (same pid).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from leadline_cli.embedded_zookeeper import (
    ServerConfig,
    java_command,
    run_in_place,
    write_logging,
)
from leadline_common.private_files import keep_files_private

_JARS: Final = (
    "zookeeper-[0-9]*",
    "zookeeper-jute-*",
    "slf4j-api-*",
    "log4j-*",
    "metrics-core-*",
    "snappy-java-*",
    "commons-io-*",
    "netty-[bchrt]*",
)
"""The jars of the server; TLS takes more parts of netty than a plain port."""
_DATA: Final = re.compile(r"^dataDir=(.+)$", re.MULTILINE)
_SERVER: Final = re.compile(r"^ssl\.keyStore\.location=.*-(\d+)\.pem$", re.MULTILINE)


def main(argv: Sequence[str] | None = None) -> None:
    """Replace this process with the server of a settings file; does not return."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if len(arguments) != 1:
        sys.exit("usage: python -m leadline_cli.host_zookeeper zoo.cfg")
    ServerConfig.check_installed()
    keep_files_private()
    settings = Path(arguments[0])
    try:
        text = settings.read_text(encoding="utf-8")
        data, server = _DATA.search(text), _SERVER.search(text)
        if data is None or server is None:
            sys.exit(f"{settings} has no dataDir or no certificate: is it from `cluster init`?")
        data_dir = Path(data[1])
        data_dir.mkdir(parents=True, exist_ok=True)
        (data_dir / "myid").write_text(f"{server[1]}\n")
        write_logging(data_dir, data_dir)
    except OSError as problem:
        sys.exit(f"{problem.filename}: {problem.strerror}")
    run_in_place(data_dir, java_command(data_dir, settings, _JARS))


if __name__ == "__main__":
    main()
