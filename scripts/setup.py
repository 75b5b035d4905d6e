"""Make `.venv` hold exactly what requirements.lock says, plus this repository's own packages.

Run by `make setup` with the machine's Python (3.11 or newer, standard library only); everything
else is fetched from the package registry that the machine is set up to use. Every file that
arrives is checked against a hash in requirements.lock: the packages, uv itself (where the machine
has none) and what builds a package that comes as source.

Usage: python scripts/setup.py
"""

import ast
import contextlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
LOCK = ROOT / "requirements.lock"
# One source archive in the lock (PySpark) is 450 MB: a mirror may take long to send its first byte.
HTTP_TIMEOUT_S = 600


class SetupError(Exception):
    """The machine lacks something that this script cannot bring; the message says what to do."""


def main() -> None:
    """Make the environment, fill it from the lock, add the members in editable form."""
    uv = shutil.which("uv")
    make_venv(uv)
    uv = uv or locked_uv()
    environment = uv_environment()
    constraints = ["--build-constraints", str(LOCK)]
    run([uv, "pip", "sync", "--require-hashes", *constraints, str(LOCK)], environment)
    editables = [part for folder in members() for part in ("--editable", str(folder))]
    run([uv, "pip", "install", "--no-deps", "--no-build-isolation", *editables], environment)


def members() -> list[Path]:
    """Return the folders of the workspace's members, as pyproject.toml lists them."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    patterns = settings["tool"]["uv"]["workspace"]["members"]
    return sorted(folder for pattern in patterns for folder in ROOT.glob(pattern))


def make_venv(uv: str | None) -> None:
    """Create `.venv` unless a working one is there."""
    if PYTHON.exists() and succeeds([str(PYTHON), "-c", "import encodings"]):
        return
    if VENV.exists():
        shutil.rmtree(VENV)
    if importlib.util.find_spec("ensurepip"):
        run([sys.executable, "-m", "venv", str(VENV)])
    elif uv:
        run([uv, "venv", "--python", sys.executable, str(VENV)])
    else:
        message = (
            f"{sys.executable} cannot make virtual environments: its ensurepip module is missing. "
            "On Debian and Ubuntu: apt-get install python3-venv. Then run `make setup` again."
        )
        raise SetupError(message)


def locked_uv() -> str:
    """Return the path of the uv that the lock names, installed into `.venv` by pip if need be."""
    uv = VENV / "bin" / "uv"
    if not uv.exists():
        if not succeeds([str(PYTHON), "-m", "pip", "--version"]):
            run([str(PYTHON), "-m", "ensurepip", "--upgrade"])
        pins = VENV / "uv-requirements.txt"
        pins.write_text(locked_requirement("uv"), encoding="utf-8")
        pip = [str(PYTHON), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        run([*pip, "--no-deps", "--require-hashes", "--requirement", str(pins)])
    return str(uv)


def locked_requirement(name: str) -> str:
    """Return the lines of requirements.lock that pin `name` with its hashes."""
    lines = LOCK.read_text(encoding="utf-8").splitlines()
    start = next(n for n, line in enumerate(lines) if line.startswith(f"{name}=="))
    end = start
    while lines[end].endswith("\\"):
        end += 1
    return "\n".join([*lines[start : end + 1], ""])


def uv_environment() -> dict[str, str]:
    """Return the process environment for uv: this venv, patience, and pip's registry settings."""
    defaults = {"UV_HTTP_TIMEOUT": str(HTTP_TIMEOUT_S), **registry_of_pip()}
    environment = {**defaults, **os.environ, "VIRTUAL_ENV": str(VENV)}
    # A system account may have no usable home: its packages are then cached beside the venv.
    if not os.access(Path(os.environ.get("HOME") or "/nonexistent"), os.W_OK):
        environment.setdefault("UV_CACHE_DIR", str(VENV / "cache"))
    return environment


def registry_of_pip() -> dict[str, str]:
    """Translate pip's registry settings for uv, which does not read them, unless it has its own."""
    names = {
        "index-url": ("UV_DEFAULT_INDEX", " "),
        "extra-index-url": ("UV_INDEX", " "),
        "find-links": ("UV_FIND_LINKS", ","),
        "cert": ("SSL_CERT_FILE", ""),
    }
    if {"UV_DEFAULT_INDEX", "UV_INDEX_URL", "UV_INDEX"} & os.environ.keys():
        return {}
    listing = subprocess.run(
        [str(PYTHON), "-m", "pip", "config", "list"], capture_output=True, text=True, check=False
    )
    found = {}
    for line in listing.stdout.splitlines():
        key, _, value = line.partition("=")
        name, separator = names.get(key.rpartition(".")[2], ("", ""))
        if name:
            # The environment is listed last, and wins over the files, as it does in pip.
            found[name] = separator.join(str(ast.literal_eval(value)).split())
    return found


def succeeds(command: list[str]) -> bool:
    """Tell whether a command can be run and ends with code 0; its output is not shown."""
    with contextlib.suppress(OSError):
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    return False


def run(command: list[str], environment: dict[str, str] | None = None) -> None:
    """Run one command, shown first; raises SetupError if it fails."""
    print("+", *(part.replace(f"{ROOT}/", "") for part in command), file=sys.stderr)
    code = subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode
    if code:
        message = f"`{Path(command[0]).name} {command[1]} …` ended with code {code}"
        raise SetupError(message)


if __name__ == "__main__":
    try:
        main()
    except SetupError as error:
        sys.exit(f"setup: {error}")
