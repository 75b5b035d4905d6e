"""Resolve the locks again: every dependency of every member, what tests install apart, a server.

A lock has versions with their hashes. It names no package registry, because each machine brings its
own; that is why it is requirements.lock and not uv.lock, which records addresses. Versions already
in a lock are kept unless `--upgrade` (or `--upgrade-package NAME`) is given; uv gets the arguments.

Usage: python scripts/lock.py [ARGUMENT OF uv pip compile ...]
"""

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


GENERATOR = "tests/support/openapi/requirements"
"""The client generator cannot share an environment with the command: they need different typers."""

GO = "tests/support/v3/requirements"
"""The Go toolchain, which builds a client where the machine has none."""
PANDAS = "tests/support/pandas/requirements"
"""pandas, which tests of data frames put on the path of programs of their own."""

CONFLUENT = "benchmarks/peers/clients/requirements"
"""A client of Kafka that only `make bench-peers` runs."""

SERVER = "deploy/containers/requirements.lock"
"""What services need: the command without its extra, in the versions of requirements.lock."""

TRACED_SERVER = "deploy/containers/tracing/requirements.lock"
"""What services need to send spans: the same, with the extra `tracing`."""

BUILD = "deploy/containers/backend/requirements.lock"
"""What builds the wheels inside the container image."""


def main(arguments: list[str]) -> int:
    """Run the resolver for all locks; its exit code is the answer."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    python = settings["project"]["requires-python"].removeprefix(">=")
    own = [
        part for name in settings["tool"]["uv"]["sources"] for part in ("--no-emit-package", name)
    ]
    groups = [part for group in settings["dependency-groups"] for part in ("--group", group)]
    return (
        resolve(python, "requirements.lock", [*own, *groups, "pyproject.toml", *arguments])
        or resolve(python, f"{GENERATOR}.lock", [f"{GENERATOR}.in", *arguments])
        or resolve(python, f"{GO}.lock", [f"{GO}.in", *arguments])
        or resolve(python, f"{PANDAS}.lock", [f"{PANDAS}.in", *arguments])
        or resolve(python, f"{CONFLUENT}.lock", [f"{CONFLUENT}.in", *arguments])
        or resolve(
            python, SERVER, [*own, "--constraints", "requirements.lock", "cli/pyproject.toml"]
        )
        or resolve(
            python,
            TRACED_SERVER,
            [
                *own,
                "--constraints",
                "requirements.lock",
                "--extra",
                "tracing",
                "cli/pyproject.toml",
            ],
        )
        or resolve(python, BUILD, ["--constraints", "requirements.lock", "--group", "build"])
    )


def resolve(python: str, lock: str, arguments: list[str]) -> int:
    """Write one lock for all platforms, from this Python version on; return uv's exit code."""
    command = [
        shutil.which("uv") or str(ROOT / ".venv/bin/uv"),
        *("pip", "compile", "--quiet", "--universal", "--generate-hashes"),
        *("--python-version", python, "--output-file", lock),
        *("--no-emit-index-url", "--no-emit-find-links", "--no-header", "--no-annotate"),
        *arguments,
    ]
    return subprocess.run(command, cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
