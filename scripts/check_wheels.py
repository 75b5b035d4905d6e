"""Install the server from dist/ into a new environment, run its commands, and print its size.

The packages come from the machine's registry, each checked against the hashes of the server's lock,
deploy/containers/requirements.lock.

Usage: python scripts/check_wheels.py
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from setup import uv_environment

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "deploy" / "containers" / "requirements.lock"
LIMIT_MB = 300
COMMANDS = (
    "--version",
    "broker --help",
    "controller --help",
    "coordinator --help",
    "topics --help",
)
NEEDS_EXTRA = ("zookeeper --data-dir none", "spark verify --help", "up --data-dir none", "demo")


def main() -> int:
    """Return 0 if everything works and is small, else 1."""
    with tempfile.TemporaryDirectory(prefix="leadline-wheels-") as folder:
        environment = Path(folder) / "venv"
        install(environment)
        size = sum(f.lstat().st_size for f in environment.rglob("*") if f.is_file())
        print(f"installed: {size / 1e6:.0f} MB")
        problems = [*check(environment, Path(folder))]
    if size > LIMIT_MB * 1e6:
        problems.append(f"more than {LIMIT_MB} MB are installed")
    print(*problems, sep="\n", end="\n" if problems else "")
    return 1 if problems else 0


def install(environment: Path) -> None:
    """Make the environment: packages by hash, then the members' wheels and nothing else."""
    uv = shutil.which("uv") or str(ROOT / ".venv/bin/uv")
    variables = {**uv_environment(), "VIRTUAL_ENV": str(environment)}
    server = ("broker", "cli", "client", "common", "controller", "coordinator")
    wheels = [str(next((ROOT / "dist").glob(f"leadline_{name}-*.whl"))) for name in server]
    for command in (
        ["venv", "--quiet", "--python", sys.executable, str(environment)],
        ["pip", "install", "--quiet", "--require-hashes", "-r", str(LOCK)],
        ["pip", "install", "--quiet", "--offline", "--no-deps", *wheels],
        ["pip", "check", "--quiet"],
    ):
        subprocess.run([uv, *command], env=variables, check=True)


def check(environment: Path, folder: Path) -> list[str]:
    """Return what is wrong with the commands."""
    problems = []
    for words in COMMANDS:
        result = leadline(environment, folder, words)
        if result.returncode:
            problems.append(f"leadline {words}: {result.stderr}")
    for words in NEEDS_EXTRA:
        result = leadline(environment, folder, words)
        if result.returncode != 2 or "leadline-cli[local]" not in result.stderr:
            problems.append(f"leadline {words}: {result.returncode} {result.stderr}")
    return problems


def leadline(environment: Path, folder: Path, words: str) -> subprocess.CompletedProcess[str]:
    """Run one command of the new environment."""
    command = [str(environment / "bin" / "leadline"), *words.split()]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


if __name__ == "__main__":
    sys.exit(main())
