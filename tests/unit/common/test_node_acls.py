"""Which role may do what with which node: every path of the layout has a row, and the right one."""

from __future__ import annotations

import pytest

from leadline_common import consumer_znodes, failed_brokers, partition_intents, tasks, znodes
from leadline_common.zk.codec import decode_acl
from leadline_common.zk.encoded_acls import NodeAcls
from leadline_common.zk.node_acls import (
    ADMIN,
    ALL,
    ANYONE,
    CREATE,
    DELETE,
    NODE_RIGHTS,
    READ,
    ROLES,
    WRITE,
    acl_of,
    pattern_of,
)

USERS = ("controller:c", "broker:b", "coordinator:k", "operator:o")
CHILDREN = CREATE | DELETE


def rights(path: str) -> dict[str, int]:
    """Return what each role may do besides reading, without those that may do nothing."""
    acl = acl_of(path, USERS)
    assert all(acl[f"digest:{user}"] & READ for user in USERS)
    assert acl.pop("digest:operator:o") == ALL
    return {user.split(":")[1]: held & ~READ for user, held in acl.items() if held != READ}


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/", {"controller": CREATE}),
        (znodes.CONTROLLER, {}),
        (znodes.CONTROLLER_EPOCH, {"controller": WRITE}),
        (znodes.CLUSTER_ID, {}),
        (znodes.BROKER_IDS, {"broker": CHILDREN}),
        (znodes.broker_id_path(3), {}),
        (znodes.broker_epoch_path(3), {"broker": WRITE}),
        (znodes.TOPICS, {"controller": CHILDREN}),
        (znodes.topic_path("t"), {"controller": CHILDREN | WRITE}),
        (znodes.partition_path("t", 0), {"controller": CHILDREN | WRITE}),
        (znodes.state_path("t", 0), {"controller": WRITE, "broker": WRITE}),
        (znodes.AUDIT, {"controller": CHILDREN, "broker": CREATE, "coordinator": CREATE}),
        (znodes.AUDIT_ENTRY_PREFIX, {}),
        (znodes.audit_path(7), {}),
        (znodes.topic_config_path("t"), {"controller": CHILDREN | WRITE}),
        (znodes.PRODUCER_ID_BLOCK, {"broker": WRITE}),
        (consumer_znodes.COORDINATOR, {"coordinator": CHILDREN | WRITE}),
        (consumer_znodes.offset_path("g", "t", 0), {"coordinator": CHILDREN | WRITE}),
        ("/security/users", {"controller": CHILDREN | WRITE}),
        ("/security/users/ann", {"controller": CHILDREN | WRITE}),
        ("/made/by/hand", {}),
    ],
)
def test_a_role_may_change_what_it_writes_and_no_more(path: str, expected: dict[str, int]) -> None:
    assert rights(path) == expected


def test_every_node_of_the_layout_has_a_row() -> None:
    paths = [
        *znodes.PERSISTENT_PATHS,
        znodes.CONTROLLER,
        znodes.CLUSTER_ID,
        znodes.PREFERRED_ELECTION,
        znodes.PRODUCER_ID_BLOCK,
        znodes.broker_id_path(1),
        znodes.broker_epoch_path(1),
        znodes.idempotency_path("key"),
        failed_brokers.failed_broker_path(1),
        failed_brokers.dead_broker_path(1),
        partition_intents.intent_path(znodes.PARTITIONS_ADD, "t", 0),
        tasks.task_path("7"),
        tasks.intent_path("t", 0),
        consumer_znodes.member_path("g", "m"),
    ]
    assert [path for path in paths if pattern_of(path) is None] == []


def test_only_administrators_may_change_acls() -> None:
    for path in NODE_RIGHTS:
        for user, held in acl_of(path, USERS).items():
            assert bool(held & ADMIN) == (user.split(":")[1] not in ROLES), (path, user)
            assert user != ANYONE


def test_a_user_that_is_no_role_may_do_everything_as_one_of_an_earlier_release() -> None:
    assert acl_of("/admin", ("services:s",)) == {"digest:services:s": ALL}


def test_an_open_cluster_stays_open_while_it_is_migrated() -> None:
    acl = acl_of(znodes.TOPICS, (*USERS, ANYONE))
    assert acl[ANYONE] == ALL
    assert acl["digest:broker:b"] == READ


def test_two_passwords_of_a_role_have_the_same_rights() -> None:
    acl = acl_of(znodes.BROKER_IDS, ("broker:old", "broker:new"))
    assert acl == {"digest:broker:old": READ | CHILDREN, "digest:broker:new": READ | CHILDREN}


def test_the_encoded_acl_is_that_of_the_table() -> None:
    acls = NodeAcls(USERS)
    for path in (znodes.BROKER_IDS, "/made/by/hand", znodes.state_path("t", 0), "/other"):
        decoded = {user: held for held, user in decode_acl(acls.encoded(path), 0)}
        assert decoded == acl_of(path, USERS)
