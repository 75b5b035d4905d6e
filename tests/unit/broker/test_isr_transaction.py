"""The transaction of an ISR write: what must still hold for it to succeed (R1, R6, R7, R9, R13)."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from leadline_broker.adapters.isr_transaction import (
    IsrChange,
    IsrTransaction,
    PartitionNodes,
    TopicNode,
    in_parts,
)
from leadline_broker.domain.effects import IsrProposal
from leadline_broker.domain.leadership import IsrWriteResult
from leadline_common import znodes
from leadline_common.zk.ops import ANY_VERSION, CheckOp, CreateOp, Op, SetOp
from leadline_common.znodes import PartitionState, TopicAssignment

ME, JOINER = 1, 3
MY_INCARNATION, ITS_INCARNATION = 7, 4
TOPIC_VERSION, STATE_VERSION = 2, 9
PARTITION = ("t", "id", 0)
GROW = IsrProposal(
    5,
    leader_epoch=6,
    isr=(ME, 2, JOINER),
    eligible=(),
    state_version=STATE_VERSION,
    joiners=((JOINER, ITS_INCARNATION),),
    directory_epochs={JOINER: 2},
)
NODES = PartitionNodes(
    TopicNode(TopicAssignment("id", {0: (ME, 2, JOINER)}), TOPIC_VERSION),
    PartitionState(ME, 6, (ME, 2), controller_epoch=3),
    STATE_VERSION,
)


def transaction(*proposals: IsrProposal) -> IsrTransaction:
    """Return the transaction of these proposals, of partitions 0, 1, …, in this order."""
    changes = [
        IsrChange(("t", "id", number), proposal, NODES)
        for number, proposal in enumerate(proposals or (GROW,))
    ]
    return IsrTransaction(ME, MY_INCARNATION, changes)


def operations(proposal: IsrProposal = GROW) -> list[Op]:
    return transaction(proposal).operations(now_ms=0)


def with_topic(assignment: TopicAssignment) -> PartitionNodes:
    return NODES._replace(topic=TopicNode(assignment, TOPIC_VERSION))


def with_state(**changes: int) -> PartitionNodes:
    return NODES._replace(state=msgspec.structs.replace(NODES.state, **changes))


def test_it_checks_its_leaders_incarnation() -> None:
    assert CheckOp(znodes.broker_epoch_path(ME), MY_INCARNATION) in operations()


def test_it_checks_that_its_joiner_is_live_in_the_incarnation_that_was_counted() -> None:
    """Another incarnation may have lost the records that this one had stated (rules R6, R9)."""
    ops = operations()

    assert CheckOp(znodes.broker_epoch_path(JOINER), ITS_INCARNATION) in ops
    assert CheckOp(znodes.broker_id_path(JOINER), ANY_VERSION) in ops


def test_it_checks_the_assignment_and_replaces_only_the_state_that_it_is_based_on() -> None:
    ops = operations()

    assert CheckOp(znodes.topic_path("t"), TOPIC_VERSION) in ops
    (written,) = [op for op in ops if isinstance(op, SetOp)]
    assert (written.path, written.version) == (znodes.state_path("t", 0), STATE_VERSION)
    assert znodes.decode_state(written.data) == msgspec.structs.replace(
        NODES.state, isr=GROW.isr, directory_epochs={JOINER: 2}
    )


def test_without_a_joiner_it_checks_no_other_broker() -> None:
    shrink = replace(GROW, isr=(ME,), joiners=(), directory_epochs=None)

    checked = [op.path for op in operations(shrink) if isinstance(op, CheckOp)]

    assert checked == [znodes.topic_path("t"), znodes.broker_epoch_path(ME)]


def test_it_records_who_is_eligible() -> None:
    shrink = replace(GROW, isr=(ME,), eligible=(2,), joiners=(), directory_epochs=None)

    (written,) = [op for op in operations(shrink) if isinstance(op, SetOp)]

    state = znodes.decode_state(written.data)
    assert (state.isr, state.eligible) == ((ME,), (2,))


def test_it_fits_the_nodes_that_it_is_based_on() -> None:
    assert IsrChange(PARTITION, GROW, NODES).fits(ME)


@pytest.mark.parametrize(
    "nodes",
    [
        pytest.param(with_topic(TopicAssignment("new", {0: (ME, 2, JOINER)})), id="recreated"),
        pytest.param(with_topic(TopicAssignment("id", {0: (ME, 2)})), id="joiner not assigned"),
        pytest.param(with_state(leader=2), id="another leader"),
        pytest.param(with_state(leader_epoch=7), id="a newer epoch"),
        pytest.param(NODES._replace(version=STATE_VERSION + 1), id="a newer version"),
    ],
)
def test_it_does_not_fit_nodes_that_have_changed(nodes: PartitionNodes) -> None:
    assert not IsrChange(PARTITION, GROW, nodes).fits(ME)


def test_a_refusal_says_whether_the_joiner_is_the_reason() -> None:
    made = transaction()
    of_joiner = {znodes.broker_epoch_path(JOINER), znodes.broker_id_path(JOINER)}

    refused = {
        op.path
        for i, op in enumerate(made.operations(now_ms=0))
        if made.refusal(i) != {0: IsrWriteResult.CONFLICT}
    }

    assert refused == of_joiner


SHRINK = replace(GROW, isr=(ME,), joiners=(), directory_epochs=None, reason="lagging")


def test_changes_share_checks_and_an_audit_entry() -> None:
    """A restart of a broker with 10,000 replicas is not 10,000 transactions."""
    ops = transaction(GROW, SHRINK, GROW).operations(now_ms=0)

    checked = [op.path for op in ops if isinstance(op, CheckOp)]
    assert checked == [
        znodes.topic_path("t"),
        znodes.broker_epoch_path(ME),
        znodes.broker_epoch_path(JOINER),
        znodes.broker_id_path(JOINER),
    ]
    written = [op.path for op in ops if isinstance(op, SetOp)]
    assert written == [znodes.state_path("t", number) for number in range(3)]
    (entry,) = [znodes.decode_audit(op.data) for op in ops if isinstance(op, CreateOp)]
    assert [(row.partition, row.after[2], row.state_version) for row in entry.changes] == [
        (0, GROW.isr, STATE_VERSION + 1),
        (1, SHRINK.isr, STATE_VERSION + 1),
        (2, GROW.isr, STATE_VERSION + 1),
    ]
    assert entry.reason == f"{GROW.reason}; {SHRINK.reason}"


def test_a_refusal_is_about_all_changes_that_depend_on_the_operation() -> None:
    made = transaction(SHRINK, GROW, GROW)
    conflict, refused = IsrWriteResult.CONFLICT, IsrWriteResult.JOINER_REFUSED

    found = [made.refusal(index) for index in range(len(made.operations(now_ms=0)))]

    everything = dict.fromkeys(range(3), conflict)
    joining = {1: refused, 2: refused}
    assert found == [
        *(everything, everything, joining, joining),
        *({0: conflict}, {1: conflict}, {2: conflict}),
        everything,
    ]


def test_a_state_of_any_size_shares_its_transaction_with_no_other() -> None:
    noted = NODES._replace(state=msgspec.structs.replace(NODES.state, extra={"note": "x" * 9}))
    changes = [IsrChange(("t", "id", n), SHRINK, noted if n == 70 else NODES) for n in range(250)]

    parts = list(in_parts(list(enumerate(changes))))

    assert [len(part) for part in parts] == [100, 100, 49, 1]
    assert parts[-1] == {70: changes[70]}
    assert sorted(number for part in parts for number in part) == list(range(250))
