"""Rolling rollback to the previous release and upgrade from it, under acks=all load (`make soak`).

The previous release's wheels are built from its commit, and unpacked beside this one's environment,
whose third-party packages both use.
"""

from __future__ import annotations

import asyncio
import io
import subprocess
import sys
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec
import pytest

from leadline_cli.node_restriction import restrict_nodes
from leadline_cli.processes import Child
from leadline_cli.restart_requests import answers_ready
from leadline_cli.rolling import RollingRestart, Target, roll_order, targets_of
from leadline_client.client import Client
from leadline_client.security import Authenticator, Security
from leadline_client.wire import NewTopic
from leadline_common import znodes
from leadline_common.versions import current_release
from leadline_common.zk.credentials import read_credentials
from tests.support.faults.scenario import TOPIC, loaded, running_cluster
from tests.support.services.cluster import Cluster
from tests.support.services.up import command_line

PREVIOUS_RELEASE: Final = "fbc15d68da0f1cbdbb1abf81ea19af7ed1eaaa15"
ROOT: Final = Path(__file__).resolve().parents[2]
NEW_SETTINGS: Final = ("zookeeper.session.file=",)
"""Settings that the previous release does not know."""
OPENED: Final = ("world:anyone",)
IN_THE_MIDDLE: Final = "broker-2"
DEADLINE_S: Final = 60.0


def install_previous_release(folder: Path) -> Path:
    """Build the wheels of the previous release and unpack them; skip where its commit is absent."""
    archive = subprocess.run(
        ["git", "archive", PREVIOUS_RELEASE], cwd=ROOT, capture_output=True, check=False
    )
    if archive.returncode:
        pytest.skip(f"this clone lacks the previous release: {archive.stderr.decode().strip()}")
    source, wheels, installed = (folder / name for name in ("source", "wheels", "installed"))
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
        files.extractall(source, filter="data")
    uv = str(Path(sys.executable).with_name("uv"))
    build = [uv, "build", "--quiet", "--wheel", "--no-build-isolation", "--python", sys.executable]
    for member in (*(source / "libs").iterdir(), *(source / "services").iterdir(), source / "cli"):
        subprocess.run([*build, "--out-dir", str(wheels), str(member)], check=True)
    install = [uv, "pip", "install", "--quiet", "--no-deps", "--offline", "--target"]
    packages = map(str, wheels.glob("*.whl"))
    subprocess.run([*install, str(installed), "--python", sys.executable, *packages], check=True)
    return installed


async def roll_to(cluster: Cluster, installed: Path | None) -> None:
    """Restart all services, each from the packages in a folder, or with None from this release.

    The active controller is killed in the middle, while brokers of both releases run.
    """
    loop = asyncio.get_running_loop()

    async def restart(name: str) -> None:
        if name == IN_THE_MIDDLE:
            controller = await cluster.active_controller()
            await cluster.kill(controller)
            cluster.restart(controller)
        await cluster.terminate(name)
        old = cluster.child(name)
        argv = without_new_settings(cluster.service(name).argv)
        path = ["env", f"PYTHONPATH={installed}"] if installed else []
        cluster.supervisor.children[name] = child = Child(name, [*path, *argv], old.log_path)
        child.start()

    def wait(target: Target) -> None:
        asyncio.run_coroutine_threadsafe(restart(target.name), loop).result(DEADLINE_S)

    active = await cluster.active_controller()
    order = roll_order(targets_of(cluster.file), int(active.rpartition("-")[2]))
    await asyncio.to_thread(_roll_all, cluster.bootstrap.split(","), order, wait)


def without_new_settings(argv: Sequence[str]) -> list[str]:
    """Return the command of a service without the settings that the previous release lacks."""
    known: list[str] = []
    for word in argv:
        if word.startswith(NEW_SETTINGS):
            known.pop()  # its --set
        else:
            known.append(word)
    return known


def _roll_all(urls: list[str], order: list[Target], restart: Callable[[Target], None]) -> None:
    authenticator = Authenticator(Security())
    with Client(urls) as client:
        rolling = RollingRestart(
            client, restart, lambda one: answers_ready(one.url, authenticator), DEADLINE_S
        )
        for target in order:
            rolling.roll(target)


async def releases(cluster: Cluster) -> set[str | None]:
    """Return what the registrations of brokers and controller name; None for none."""
    paths = [*(znodes.broker_id_path(number) for number in (1, 2, 3)), znodes.CONTROLLER]
    async with cluster.zookeeper() as zk:
        return {msgspec.json.decode((await zk.get(path))[0]).get("release") for path in paths}


async def shown_releases(cluster: Cluster) -> set[str]:
    """Return the releases that this release's `leadline brokers` and `leadline doctor` show."""
    where = ("--json", "--data-dir", str(cluster.data_dir))
    said = []
    for command in ("brokers", "doctor"):
        process = await asyncio.create_subprocess_exec(
            *command_line(command, *where), stdout=asyncio.subprocess.PIPE
        )
        said.append(msgspec.json.decode((await process.communicate())[0]))
    found = {row["found"] for row in said[1]["findings"] if row["check"] == "releases"}
    return {row["release"] for row in said[0]["brokers"]} | found


async def let_in(cluster: Cluster, *more: str) -> None:
    """Open all nodes for `more` than the cluster's users, as docs/deployment.md says.

    A controller that starts without these in its file would restrict the nodes again.
    """
    file = cluster.credentials.zookeeper_user("controller")
    known = [line for line in file.read_text().split() if line not in OPENED]
    file.write_text("\n".join([*known, *more]))
    for number in (1, 2, 3):
        await cluster.terminate(f"controller-{number}")
        cluster.restart(f"controller-{number}")
        await cluster.until_ready(f"controller-{number}")
    await restrict(cluster, *more)


async def restrict(cluster: Cluster, *more: str) -> None:
    """Give all nodes the ACLs for the cluster's users, and for more."""
    operator = cluster.credentials.zookeeper_operator
    wider = operator.with_name("wider")
    wider.write_text("\n".join([*operator.read_text().split(), *more]))
    done = await restrict_nodes(cluster.supervisor.layout.zookeeper, read_credentials(wider))
    assert not done.refused


@pytest.mark.soak
@pytest.mark.timeout(600)
async def test_releases_are_exchanged_without_a_failed_produce(tmp_path: Path) -> None:
    """The running release goes back to the previous one, and forward again."""
    installed = await asyncio.to_thread(install_previous_release, tmp_path)
    async with (
        running_cluster(controllers=3, coordinators=2) as cluster,
        loaded(cluster, NewTopic(TOPIC, 6, 3)) as running,
    ):
        await running.full_isr()
        assert await releases(cluster) == {current_release()}
        await let_in(cluster, *OPENED)  # the previous release knows no users by kind
        await roll_to(cluster, installed)
        assert await releases(cluster) == {None}
        assert await shown_releases(cluster) == {"", "unknown: broker 1, 2, 3"}
        await running.load.progress()
        await roll_to(cluster, None)
        await let_in(cluster)
        assert await releases(cluster) == {current_release()}
        now = current_release()
        assert await shown_releases(cluster) == {now, f"{now}: broker 1, 2, 3"}
        await running.load.progress()
        assert running.load.errors == {}
        await running.verify()
