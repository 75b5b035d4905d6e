"""Forked children are as if their command had been executed, and end with their fork server."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from leadline_cli import forked_child
from leadline_cli.cluster_layout import service_command
from leadline_cli.forked_child import ForkedChild, ForkServerFailed, server_pid
from leadline_cli.processes import Child, module_command
from tests.support.services.cluster import is_alive, wait_until

ROOT = Path(__file__).parents[3]
PROBE = "tests.support.services.forked_probe"
PARENT = f"""
import sys, time
from pathlib import Path
from leadline_cli.forked_child import ForkedChild, server_pid
from leadline_cli.processes import module_command
child = ForkedChild("c", module_command("{PROBE}"), Path(sys.argv[1]), ["{PROBE}"])
child.start()
print(child.pid, server_pid(), flush=True)
time.sleep(600)
"""

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="children are forked on Linux")


@pytest.fixture(scope="module", autouse=True)
def own_server() -> Iterator[None]:
    """Fork from a server of these tests, which finds their modules, not from one of other tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(ROOT))
        patch.setattr(forked_child, "_servers", [])
        yield
        forked_child._end_at_exit()


@pytest.fixture
async def children(tmp_path: Path) -> AsyncIterator[list[ForkedChild]]:
    """Two children, not started; killed after the test."""
    made = [probe(tmp_path / f"{number}.log") for number in range(2)]
    yield made
    for child in made:
        await child.kill()


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Let interrupts end this process: children inherit that one ignores them, as in `make &`."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def probe(log: Path, *arguments: str) -> ForkedChild:
    return ForkedChild("probe", module_command(PROBE, *arguments), log, [PROBE])


async def state_of(child: Child) -> dict[str, Any]:
    async def said() -> dict[str, Any] | None:
        lines = child.tail(100).splitlines()
        found = [json.loads(line) for line in lines if line.startswith("{")]
        return found[-1] if found else None

    return await wait_until(said, "the child has said what it is")


async def ended(child: Child) -> int:
    async def over() -> bool:
        return not child.running

    await wait_until(over, "the child has ended")
    assert child.exit_code is not None
    return child.exit_code


def parent_of(pid: int | None) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def command_of(pid: int | None) -> str:
    return Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").decode()


def name_of(pid: int | None) -> str:
    return Path(f"/proc/{pid}/comm").read_text()[:6]


@pytest.mark.usefixtures("interruptible")
async def test_a_forked_child_is_as_if_its_command_had_been_executed(
    tmp_path: Path, children: list[ForkedChild], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = children
    first.start()
    await state_of(first)
    monkeypatch.setenv("LEADLINE_PROBE", "\udcff set later")
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.chdir(tmp_path)
    second.start()
    executed = Child("executed", second.argv, tmp_path / "executed.log")
    executed.start()
    forked, plain = await state_of(second), await state_of(executed)
    await executed.kill()
    assert parent_of(second.pid) == server_pid()
    assert forked["environment"] == dict(os.environ)
    same = ("argv", "directory", "fds", "session", "signals", "interruptible", "masked", "stdin")
    assert {name: forked[name] for name in same} == {name: plain[name] for name in same}


async def test_forked_children_draw_different_random_numbers(children: list[ForkedChild]) -> None:
    for child in children:
        child.start()
    first, second = [(await state_of(child))["drawn"] for child in children]
    assert not set(first) & set(second)


async def test_ps_shows_the_command_of_a_forked_child(children: list[ForkedChild]) -> None:
    children[0].argv += ["sleep", "--set", f"name={'x' * 500}"]
    children[0].start()
    await state_of(children[0])
    assert command_of(children[0].pid) == " ".join(children[0].argv)
    assert name_of(children[0].pid) == "python"


@pytest.mark.parametrize(("todo", "code"), [("0", 0), ("3", 3), ("fail", 1)])
async def test_the_exit_code_of_a_forked_child_is_reported(
    tmp_path: Path, todo: str, code: int
) -> None:
    child = probe(tmp_path / "log", todo)
    child.start()
    assert await ended(child) == code
    assert ("RuntimeError: failed as asked" in child.tail()) == (todo == "fail")


async def test_a_forked_child_can_be_frozen_stopped_and_started_again(
    children: list[ForkedChild],
) -> None:
    child = children[0]
    child.start()
    await state_of(child)
    child.signal(signal.SIGSTOP)
    assert child.running
    await child.stop()
    assert child.exit_code == -signal.SIGTERM
    child.signal(signal.SIGTERM)
    child.start()
    await child.kill()
    assert child.exit_code == -signal.SIGKILL


async def test_wrong_usage_of_a_forked_service_ends_with_2(tmp_path: Path) -> None:
    argv = service_command("broker", {"no.such.setting": "1"})
    child = ForkedChild("broker-1", argv, tmp_path / "log", ["leadline_cli.service"])
    child.start()
    assert await ended(child) == 2
    assert "no.such.setting" in child.tail()


async def test_a_module_that_cannot_be_imported_is_named_in_the_log(tmp_path: Path) -> None:
    name = "leadline_cli.no_such_module"
    child = ForkedChild("none", module_command(name), tmp_path / "log", [name])
    child.start()
    assert await ended(child) == 1
    assert "No module named 'leadline_cli.no_such_module'" in child.tail()


async def test_children_end_with_a_killed_fork_server_and_the_next_start_has_a_new_one(
    children: list[ForkedChild],
) -> None:
    for child in children:
        child.start()
    before = server_pid()
    assert before is not None
    os.kill(before, signal.SIGKILL)
    assert [await ended(child) for child in children] == [-signal.SIGKILL] * 2
    children[0].start()
    assert children[0].running
    assert server_pid() not in (None, before)


async def test_a_server_that_does_not_answer_ends_no_child_and_starts_no_other(
    children: list[ForkedChild], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = children
    first.start()
    before, running = server_pid(), first.pid
    assert before is not None
    os.kill(before, signal.SIGSTOP)
    with monkeypatch.context() as patch:
        patch.setattr(forked_child, "ANSWER_DEADLINE_S", 0.1)
        with pytest.raises(ForkServerFailed, match="no answer"):
            second.start()
    assert first.running
    assert server_pid() is None

    second.start()
    assert server_pid() not in (None, before)
    os.kill(before, signal.SIGCONT)
    late = await child_besides(before, running)
    assert first.running

    async def killed() -> bool:
        return first.running and second.running and is_reaped(late)

    await wait_until(killed, "what was started too late is ended")
    await first.stop()
    assert first.exit_code == -signal.SIGTERM

    async def server_ended() -> bool:
        return is_reaped(before)

    await wait_until(server_ended, "the server ends with its last child")


def is_reaped(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def children_of(pid: int) -> list[int]:
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(word) for word in found.split()]


async def child_besides(server: int, known: int | None) -> int:
    """Return the other child of a process, once it has one."""

    async def found() -> int | None:
        return next((pid for pid in children_of(server) if pid != known), None)

    return await wait_until(found, "it has another child")


async def test_the_end_of_a_child_is_noticed_although_its_server_hangs(
    children: list[ForkedChild], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = children
    first.start()
    hanging = server_pid()
    assert hanging is not None
    os.kill(hanging, signal.SIGSTOP)
    with monkeypatch.context() as patch:
        patch.setattr(forked_child, "ANSWER_DEADLINE_S", 0.1)
        with pytest.raises(ForkServerFailed, match="no answer"):
            second.start()
    first.signal(signal.SIGKILL)
    assert await ended(first) == -signal.SIGKILL


async def test_neither_server_nor_children_outlive_a_killed_supervisor(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PARENT, str(tmp_path / "log")]
    parent = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    assert parent.stdout is not None
    pids = [int(word) for word in (await parent.stdout.readline()).split()]
    assert all(is_alive(pid) for pid in pids)
    parent.kill()
    await parent.wait()

    async def gone() -> bool:
        return not any(is_alive(pid) for pid in pids)

    await wait_until(gone, "all are gone")


async def test_a_child_that_needs_another_interpreter_is_executed(
    children: list[ForkedChild], monkeypatch: pytest.MonkeyPatch
) -> None:
    children[0].start()
    monkeypatch.setenv("PYTHONHASHSEED", "7")
    children[1].start()
    assert parent_of(children[0].pid) == server_pid()
    assert parent_of(children[1].pid) == os.getpid()


def fork_and_look() -> int:
    """Return 0 if a forked process has no fork server."""
    pid = os.fork()
    if pid == 0:
        os._exit(0 if server_pid() is None else 1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


async def test_a_forked_process_does_not_use_its_parents_server(
    children: list[ForkedChild],
) -> None:
    children[0].start()
    assert fork_and_look() == 0
    children[1].start()
    assert parent_of(children[1].pid) == server_pid()


def test_modules_of_the_working_directory_are_not_imported(tmp_path: Path) -> None:
    for name in ("runpy", "logging", "asyncio"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit(f'{__file__} was imported')\n")
    code = (
        "from pathlib import Path\n"
        "from leadline_cli.forked_child import ForkedChild\n"
        "from leadline_cli.processes import Child, module_command\n"
        f"argv = module_command('{PROBE}', '0')\n"
        f"forked = ForkedChild('f', argv, Path('forked'), ['{PROBE}'])\n"
        "for child in (forked, Child('e', argv, Path('executed'))):\n"
        "    child.start()\n"
        "    while child.running: pass\n"
        "    print(child.exit_code)\n"
    )
    done = run_in(tmp_path, [sys.executable, "-P", "-c", code], python_path=ROOT)
    logs = [log.read_text() for log in tmp_path.glob("[ef]*ed")]
    assert done.stdout.split() == ["0", "0"], (done.stderr, logs)


def run_in(
    directory: Path, command: list[str], python_path: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command in a directory; modules are found there, unless `python_path` is given."""
    return subprocess.run(
        command,
        cwd=directory,
        env=os.environ | {"PYTHONPATH": str(python_path or directory)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_a_module_that_starts_a_thread_is_refused(tmp_path: Path) -> None:
    (tmp_path / "threaded.py").write_text(
        "import threading, time\n"
        "threading.Thread(target=time.sleep, args=(600,), daemon=True).start()\n"
    )
    code = (
        "import sys; from pathlib import Path\n"
        "from leadline_cli.forked_child import ForkedChild\n"
        "from leadline_cli.processes import module_command\n"
        "ForkedChild('t', module_command('threaded'), Path('log'), ['threaded']).start()\n"
    )
    done = run_in(tmp_path, [sys.executable, "-c", code])
    assert "importing these must not start a thread" in done.stderr


def test_a_fork_that_fails_ends_no_other_child(tmp_path: Path) -> None:
    (tmp_path / "sleeper.py").write_text("import time\ndef main(_): time.sleep(600)\n")
    (tmp_path / "full.py").write_text(
        "import os\ndef fork(): raise BlockingIOError(11, 'no process is left')\nos.fork = fork\n"
    )
    code = (
        "import sys; from pathlib import Path\n"
        "from leadline_cli.forked_child import ForkedChild, ForkServerFailed\n"
        "from leadline_cli.processes import module_command\n"
        "argv = module_command('sleeper')\n"
        "first, second = (ForkedChild('t', argv, Path('log'), [name]) for name in sys.argv[1:])\n"
        "first.start()\n"
        "try: second.start()\n"
        "except ForkServerFailed as problem: print(problem, first.running)\n"
    )
    done = run_in(tmp_path, [sys.executable, "-c", code, "sleeper", "full"])
    assert done.stdout == "it cannot fork: no process is left True\n"
