"""The outcome of a call with several attempts: refused or unknown (rule R15)."""

from __future__ import annotations

import pytest

from leadline_client.errors import (
    AllKnownBrokersNotAvailable,
    BodyTooLarge,
    ConnectionLost,
    LeadershipLost,
    LeadlineError,
    NotEnoughReplicas,
    NotLeader,
    OutOfOrderSequence,
    RequestInDoubt,
    RequestUnderWay,
    UnknownTopic,
    Unreachable,
)
from leadline_client.retry import Attempts, RetryPolicy

POLICY = RetryPolicy(timeout_s=10, unknown_topic_s=1, first_pause_s=0.1, longest_pause_s=1)


def outcome(*failures: LeadlineError, repeatable: bool, now_s: float = 0.0) -> LeadlineError | None:
    """Return the error that the caller gets after `failures`, None if there is another attempt."""
    attempts = Attempts(POLICY, started_s=0, timeout_s=10)
    for failure in failures:
        try:
            attempts.pause_after(failure, repeatable=repeatable, now_s=now_s, random=0.5)
        except LeadlineError as error:
            return error
    return None


@pytest.mark.parametrize("failure", [NotLeader(""), NotEnoughReplicas(""), Unreachable("")])
@pytest.mark.parametrize("repeatable", [True, False])
def test_a_retriable_refusal_is_tried_again_whatever_the_request(
    failure: LeadlineError, repeatable: bool
) -> None:
    assert outcome(failure, repeatable=repeatable) is None


@pytest.mark.parametrize("failure", [BodyTooLarge(""), OutOfOrderSequence("")])
def test_a_final_refusal_is_raised_at_once(failure: LeadlineError) -> None:
    assert outcome(failure, repeatable=True) is failure


@pytest.mark.parametrize("failure", [ConnectionLost(""), LeadershipLost("")])
def test_an_unknown_outcome_is_tried_again_only_if_repeatable(failure: LeadlineError) -> None:
    assert outcome(failure, repeatable=False) is failure
    assert outcome(failure, repeatable=True) is None


def test_a_change_whose_response_the_server_has_lost_is_not_tried_again() -> None:
    """The first request with its key is waited for; that its response is lost stays so."""
    doubt = RequestInDoubt("lost")
    assert outcome(RequestUnderWay(""), repeatable=True) is None
    assert outcome(ConnectionLost(""), doubt, repeatable=True) is doubt


def test_a_refusal_after_an_unknown_attempt_leaves_the_whole_unknown() -> None:
    lost = ConnectionLost("after the append")
    raised = outcome(lost, OutOfOrderSequence("gap"), repeatable=True)
    assert raised is lost
    assert isinstance(raised.__cause__, OutOfOrderSequence)


def test_a_read_never_has_an_unknown_outcome() -> None:
    attempts = Attempts(POLICY, started_s=0, timeout_s=10, reads=True)
    attempts.pause_after(ConnectionLost(""), repeatable=True, now_s=0, random=0.5)
    with pytest.raises(Unreachable):
        attempts.pause_after(Unreachable(""), repeatable=True, now_s=10, random=0.5)


def test_the_deadline_ends_retries() -> None:
    failure = NotLeader("")
    assert outcome(failure, repeatable=True, now_s=9.5) is None
    assert outcome(failure, repeatable=True, now_s=9.95) is failure


def test_a_call_for_an_unknown_topic_fails_sooner() -> None:
    failure = UnknownTopic("")
    assert outcome(failure, repeatable=True, now_s=0.5) is None
    assert outcome(failure, repeatable=True, now_s=1.0) is failure


@pytest.mark.parametrize("answered", [True, False])
def test_a_call_to_a_cluster_that_never_answered_fails_sooner(answered: bool) -> None:
    nobody = AllKnownBrokersNotAvailable("")
    attempts = Attempts(RetryPolicy(first_contact_s=2), started_s=0, timeout_s=10)
    attempts.pause_after(nobody, repeatable=True, now_s=1, random=0, answered=answered)
    if answered:
        attempts.pause_after(nobody, repeatable=True, now_s=3, random=0, answered=answered)
    else:
        attempts.pause_after(Unreachable(""), repeatable=True, now_s=3, random=0, answered=answered)
        with pytest.raises(AllKnownBrokersNotAvailable):
            attempts.pause_after(nobody, repeatable=True, now_s=3, random=0, answered=answered)


def test_pauses_grow_to_the_longest_and_half_of_each_is_random() -> None:
    assert [POLICY.pause_s(n, 1.0) for n in (1, 2, 3, 9)] == [0.1, 0.2, 0.4, 1.0]
    assert POLICY.pause_s(2, 0.0) == 0.1
    assert POLICY.pause_s(10_000, 1.0) == 1.0
