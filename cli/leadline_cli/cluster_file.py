"""`cluster.json`: the processes of a cluster, for people, scripts and a later `leadline up`."""

from __future__ import annotations

import errno
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

FILE_NAME: Final = "cluster.json"
DATA_DIR_VARIABLE: Final = "LEADLINE_DATA_DIR"
DEFAULT_DATA_DIR: Final = Path("data")
_NOTHING_THERE: Final = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
_KINDS: Final = ("controllers", "brokers", "coordinators", "zookeeper_servers")


class DamagedClusterFile(ValueError):
    """The file is not a valid cluster.json; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Service:
    """One process. Running `argv` again restarts it; `pid` is that of the latest run."""

    id: int
    url: str
    pid: int
    argv: tuple[str, ...]
    log_dir: str | None = None
    rack: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the fields that are set."""
        return {name: value for name, value in asdict(self).items() if value is not None}


@dataclass(frozen=True, slots=True)
class ClusterFile:
    """The document that `leadline up --json` prints and `DIR/cluster.json` holds.

    `zookeeper` is the connection string. `zookeeper_servers` is empty if the ensemble was
    not started by `leadline up`.
    """

    cluster_id: str
    zookeeper: str
    controllers: tuple[Service, ...]
    brokers: tuple[Service, ...]
    coordinators: tuple[Service, ...] = ()
    zookeeper_servers: tuple[Service, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the document."""
        services = {kind: [row.to_json() for row in getattr(self, kind)] for kind in _KINDS}
        return {"cluster_id": self.cluster_id, "zookeeper": self.zookeeper, **services}

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> ClusterFile:
        """Parse the document; fields that this release does not know are ignored."""
        services = {kind: _services(document.get(kind, [])) for kind in _KINDS}
        return cls(_text(document["cluster_id"]), _text(document["zookeeper"]), **services)

    def write(self, data_dir: Path) -> None:
        """Replace the file atomically."""
        path = data_dir / FILE_NAME
        draft = path.with_suffix(".json.new")
        with draft.open("w", encoding="utf-8") as file:
            json.dump(self.to_json(), file, indent=2)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)


def read_cluster_file(data_dir: Path) -> ClusterFile | None:
    """Return the cluster of the directory, or None if there is no cluster.json.

    Raises:
        DamagedClusterFile: the file cannot be read or parsed.

    """
    path = data_dir / FILE_NAME
    try:
        return ClusterFile.from_json(json.loads(path.read_text(encoding="utf-8")))
    except OSError as problem:
        if problem.errno in _NOTHING_THERE:
            return None
        raise DamagedClusterFile(
            f"{path} cannot be read ({problem.strerror}): name brokers with --bootstrap, or give "
            "another --data-dir"
        ) from problem
    except (ValueError, KeyError, TypeError, AttributeError) as problem:
        raise DamagedClusterFile(
            f"{path} cannot be read ({type(problem).__name__}: {problem}): name brokers with "
            "--bootstrap, or remove the file and run `leadline up` again; that keeps the data"
        ) from problem


def _services(rows: list[dict[str, Any]]) -> tuple[Service, ...]:
    return tuple(
        Service(
            _number(row["id"]),
            _url(row["url"]),
            _number(row["pid"]),
            tuple(map(_text, row["argv"])),
            _optional_text(row.get("log_dir")),
            _optional_text(row.get("rack")),
        )
        for row in rows
    )


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


def _optional_text(value: Any) -> str | None:
    return None if value is None else _text(value)


def _number(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise TypeError(f"{value!r} is no number of a service or a process")
    return value


def _url(value: Any) -> str:
    """Return an address; it raises ValueError where that has no host and port that can be read."""
    urlsplit(_text(value)).port  # noqa: B018 - reading it checks it
    return str(value)
