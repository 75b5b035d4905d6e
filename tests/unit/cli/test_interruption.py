"""SIGTERM and SIGHUP interrupt a command as Ctrl-C does. Each test has a process of its own."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from leadline_cli.interruption import run

DEFAULT = "import signal; signal.signal(signal.SIGHUP, signal.SIG_DFL)\n"
PROGRAM = """
import asyncio, signal, sys
from leadline_cli.interruption import run

async def work():
    print("began", flush=True)
    try:
        await asyncio.sleep(600)
    except asyncio.CancelledError:
        print("interrupted", flush=True)
        if "returns" in sys.argv:
            return "a result"
        if "hangs" in sys.argv:
            await asyncio.sleep(600)
        raise

try:
    print(run(work()))
except KeyboardInterrupt:
    print("nothing")
"""


def started(*words: str, before: str = DEFAULT) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", before + PROGRAM, *words], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "began\n"
    return process


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize(("word", "found"), [("returns", "a result"), ("ends", "nothing")])
def test_a_coroutine_that_is_interrupted_may_still_return(
    number: signal.Signals, word: str, found: str
) -> None:
    with started(word) as process:
        process.send_signal(number)
        output, _ = process.communicate(timeout=60)

    assert output.splitlines() == ["interrupted", found]
    assert process.returncode == 0


def test_a_second_sigterm_ends_the_process_at_once() -> None:
    with started("hangs") as process:
        process.terminate()
        assert process.stdout is not None
        assert process.stdout.readline() == "interrupted\n"
        process.terminate()
        process.communicate(timeout=60)

    assert process.returncode == -signal.SIGTERM


def test_a_second_sighup_does_not_cut_the_end_short() -> None:
    with started("hangs") as process:
        process.send_signal(signal.SIGHUP)
        assert process.stdout is not None
        assert process.stdout.readline() == "interrupted\n"
        process.send_signal(signal.SIGHUP)
        process.terminate()
        process.communicate(timeout=60)

    assert process.returncode == -signal.SIGTERM, "and not that of SIGHUP, which came first"


def test_sighup_stays_ignored_under_nohup() -> None:
    ignored = "import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
    with started("ends", before=ignored) as process:
        process.send_signal(signal.SIGHUP)
        process.terminate()
        output, _ = process.communicate(timeout=60)

    assert output.splitlines() == ["interrupted", "nothing"]
    assert process.returncode == 0


def test_sigterm_works_where_ctrl_c_is_ignored() -> None:
    """As for what a shell runs in the background."""
    ignored = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
    with started("ends", before=ignored) as process:
        process.terminate()
        output, _ = process.communicate(timeout=60)

    assert output.splitlines() == ["interrupted", "nothing"]


def test_sigterm_stays_ignored_if_it_is() -> None:
    async def handler() -> object:
        return signal.getsignal(signal.SIGTERM)

    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        assert run(handler()) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGTERM, before)


def test_sigterm_is_as_before_when_the_coroutine_has_ended() -> None:
    async def nothing() -> None:
        pass

    before = signal.getsignal(signal.SIGTERM)
    run(nothing())
    assert signal.getsignal(signal.SIGTERM) == before
