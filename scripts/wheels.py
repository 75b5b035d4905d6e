"""Build the wheels of all members into dist/, with the build backend of the environment.

Usage: python scripts/wheels.py [FOLDER]
"""

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def main(folder: Path) -> int:
    """Build every member; return the exit code of the first build that fails, else 0."""
    uv = shutil.which("uv") or str(ROOT / ".venv/bin/uv")
    python = str(ROOT / ".venv/bin/python")
    for member in members():
        # Without isolation the backend is the locked one, and nothing is downloaded.
        command = [uv, "build", "--quiet", "--wheel", "--no-build-isolation", "--python", python]
        code = subprocess.run(
            [*command, "--out-dir", str(folder), str(member)], cwd=ROOT, check=False
        ).returncode
        if code:
            return code
    print(*sorted(path.name for path in folder.glob("*.whl")), sep="\n")
    return 0


def members() -> list[Path]:
    """Return the folders of the workspace's members."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    patterns = settings["tool"]["uv"]["workspace"]["members"]
    return sorted(folder for pattern in patterns for folder in ROOT.glob(pattern))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else ROOT / "dist"))
