"""Fetch the console's front-end libraries, which are in the tree as their authors publish them.

Usage: python scripts/vendor.py [--check]

`vendor/manifest.json` names each package with its version, its licence, the hash of its archive,
and the files taken from it. This script gets the archives with `npm pack`, checks the hashes and
writes the files; with --check it writes nothing, and exits with 1 where a file differs.

Two things are changed: imports by package name become relative (a page whose security policy
allows no inline script can have no import map), and references to source maps are removed.
"""

import hashlib
import json
import re
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
VENDOR = ROOT / "libs/common/leadline_common/console/static/vendor"
MANIFEST = VENDOR / "manifest.json"
_IMPORT = re.compile(r"""\b(from\s*)(["'])([@\w][\w@/-]*)\2""")
_SOURCE_MAP = re.compile(r"^//# sourceMappingURL=.*\n?", re.MULTILINE)


def main(arguments: list[str]) -> int:
    """Write or check the files; return the exit code."""
    manifest = json.loads(MANIFEST.read_text(encoding="utf-8"))
    differing = []
    with tempfile.TemporaryDirectory() as folder:
        for name, content in files_of(manifest, Path(folder)):
            path = VENDOR / name
            if not path.exists() or path.read_text(encoding="utf-8") != content:
                differing.append(name)
            if "--check" not in arguments:
                path.write_text(content, encoding="utf-8")
    for name in differing:
        print(f"{name} {'differs' if '--check' in arguments else 'was written'}")
    return 1 if differing and "--check" in arguments else 0


def files_of(manifest: dict[str, Any], folder: Path) -> Iterator[tuple[str, str]]:
    """Yield name and content of each file that the manifest lists.

    Raises:
        SystemExit: an archive does not have the hash of the manifest.

    """
    modules = manifest["modules"]
    for package in manifest["packages"]:
        with tarfile.open(packed(package, folder)) as archive:
            for source, name in package["files"].items():
                found = archive.extractfile(f"package/{source}")
                if found is None:
                    sys.exit(f"{package['name']} has no {source}")
                text = found.read().decode()
                yield name, rewritten(text, modules) if name.endswith(".js") else text


def packed(package: dict[str, Any], folder: Path) -> Path:
    """Download the archive of a package, and return its path."""
    wanted = f"{package['name']}@{package['version']}"
    done = subprocess.run(
        ["npm", "pack", "--silent", wanted],  # noqa: S607 - npm as the machine has it
        cwd=folder,
        check=True,
        capture_output=True,
        text=True,
    )
    path = folder / done.stdout.split()[-1]
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    if found != package["sha256"]:
        sys.exit(f"{wanted} has the hash {found}, not {package['sha256']}")
    return path


def rewritten(code: str, modules: dict[str, str]) -> str:
    """Return a module with relative imports and without a source map.

    Raises:
        SystemExit: it imports a module that the manifest does not list.

    """

    def relative(found: re.Match[str]) -> str:
        start, quote, module = found.groups()
        if module not in modules:
            sys.exit(f"nothing in the manifest provides {module}")
        return f"{start}{quote}./{modules[module]}{quote}"

    return _SOURCE_MAP.sub("", _IMPORT.sub(relative, code)).rstrip() + "\n"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
