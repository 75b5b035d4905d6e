"""All passwords of ZooKeeper are replaced under load, in the steps of docs/security.md.

Three rolling restarts: not part of `make test`. Run it by
`python -m pytest -m soak tests/e2e/test_zookeeper_passwords.py`.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from pathlib import Path

import pytest

from leadline_cli.credentials import Credentials, write_private
from leadline_cli.node_restriction import restrict_nodes
from leadline_client.wire import NewTopic
from leadline_common.identity import KINDS
from leadline_common.zk.credentials import ZkCredentials, digest_of, read_credentials
from leadline_common.zk.errors import NotPermitted
from leadline_common.znodes import CLUSTER_ID
from tests.support.faults.scenario import TOPIC, Scenario, loaded, running_cluster
from tests.support.services.rolling import roll


@dataclass(frozen=True)
class Passwords:
    """The old and the new logins, `user:password`, by the file that has them."""

    old: dict[Path, str]
    new: dict[Path, str]

    @classmethod
    def of(cls, credentials: Credentials) -> Passwords:
        files = [credentials.zookeeper_operator, *map(credentials.zookeeper_user, KINDS)]
        old = {path: path.read_text().split()[0] for path in files}
        new = {
            path: f"{login.partition(':')[0]}:{secrets.token_urlsafe(32)}"
            for path, login in old.items()
        }
        return cls(old, new)

    def write(self, own: dict[Path, str], *others: dict[Path, str]) -> None:
        """Give each file its own login, and the digests of these and of other logins."""
        known = {digest_of(login) for logins in (own, *others) for login in logins.values()}
        for path, login in own.items():
            rest = sorted(known - {digest_of(login)})
            write_private(path, "\n".join((login, *rest, "")).encode())


async def restart_all(running: Scenario) -> None:
    code, _, notes = await roll(running.cluster.data_dir)
    assert code == 0, notes


async def restrict(running: Scenario, file: Path) -> None:
    done = await restrict_nodes(running.cluster.file.zookeeper, read_credentials(file))
    assert done.refused == []
    await running.load.progress()


@pytest.mark.soak
@pytest.mark.timeout(600)
async def test_all_passwords_are_replaced_and_no_request_fails() -> None:
    async with (
        running_cluster(controllers=2, coordinators=2) as cluster,
        cluster.supervisor.watched(print),
        loaded(cluster, NewTopic(TOPIC, 6, 3)) as running,
    ):
        await running.full_isr()
        operator = cluster.credentials.zookeeper_operator
        passwords = Passwords.of(cluster.credentials)
        passwords.write(passwords.old, passwords.new)
        await restart_all(running)
        await restrict(running, operator)
        passwords.write(passwords.new, passwords.old)
        await restart_all(running)
        passwords.write(passwords.new)
        await restart_all(running)
        await restrict(running, operator)
        assert running.load.errors == {}
        await running.verify()
        for login in passwords.old.values():
            async with cluster.zookeeper_as(ZkCredentials.of(login)) as session:
                with pytest.raises(NotPermitted):
                    await session.get(CLUSTER_ID)
