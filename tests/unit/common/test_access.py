"""Who may do what: principals, tokens, users, grants, and the table of operations."""

from __future__ import annotations

import base64
import re

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from leadline_client.errors import Forbidden, InvalidRequest, NotFound, PolicyViolation
from leadline_common.access.caller import (
    EVERYBODY,
    NOBODY,
    Caller,
    caller_scope,
    current_actor,
    require,
    require_all,
    require_matches,
    version_for_caller,
    visible,
)
from leadline_common.access.operations import INTERNAL_OPERATIONS, NEEDS, PUBLIC
from leadline_common.access.principals import ANONYMOUS, Principal, is_user_name
from leadline_common.access.rights import (
    RIGHTS_OF_ROLES,
    Access,
    Action,
    Grant,
    Names,
    Role,
    prefix_of_pattern,
)
from leadline_common.access.tokens import (
    RANDOM_BYTES,
    KeptToken,
    Token,
    hash_of,
    new_token,
    parse_token,
    token_in,
)
from leadline_common.access.users import (
    MAX_EXPIRED,
    MAX_TOKENS,
    User,
    Users,
    check_patterns,
    decode_user,
    encode_user,
)
from leadline_common.http.access import check_rights
from leadline_common.identity import ServiceIdentity

NOW = 1_000_000
ONE = new_token(bytes(range(RANDOM_BYTES)))
TWO = new_token(bytes(range(1, RANDOM_BYTES + 1)))
PARTS = ["a", "b", r"\.", ".", "a*", "b?", "[ab]", "(a|b)", r"\d"]
"""Parts of regular expressions."""
TOPICS = st.text("ab.-_", min_size=1, max_size=6)


def kept(token: Token, expires_ms: int | None = None) -> KeptToken:
    return KeptToken(token.id, hash_of(token), NOW, expires_ms)


# -- principals ------------------------------------------------------------------


@given(st.text(max_size=140))
def test_a_users_name_is_read_back_from_its_text_or_refused(name: str) -> None:
    if is_user_name(name):
        assert Principal.parse(str(Principal.user(name))) == Principal.user(name)
        assert re.fullmatch(r"[A-Za-z0-9._@-]+", name)
    else:
        assert Principal.parse(f"user:{name}") is None
        with pytest.raises(InvalidRequest):
            Principal.user(name)


@pytest.mark.parametrize("text", ["", "user", "user:", "user:.", "user:..", "admin", "anonymous:x"])
def test_other_texts_name_nobody(text: str) -> None:
    assert Principal.parse(text) is None


@pytest.mark.parametrize("kind", ["broker", "controller", "coordinator"])
def test_no_text_names_a_service(kind: str) -> None:
    assert Principal.parse(f"{kind}:1") is None
    service = Principal.service(ServiceIdentity("broker", 3))
    assert str(service) == "broker:3"


# -- tokens ----------------------------------------------------------------------


@given(st.binary(min_size=RANDOM_BYTES, max_size=RANDOM_BYTES))
def test_a_token_is_read_back_from_its_text(random: bytes) -> None:
    token = new_token(random)
    assert parse_token(str(token)) == token
    assert token_in(f"Bearer {token}") == token_in(f"bearer  {token}") == token
    basic = base64.b64encode(f"{token.id}:{token.secret}".encode()).decode()
    assert token_in(f"Basic {basic}") == token
    assert token.secret not in repr(token)
    assert kept(token).matches(token)


@given(st.text(max_size=60))
def test_other_headers_have_no_token(text: str) -> None:
    assume(parse_token(text.partition(" ")[2].strip()) is None)
    assert token_in(text) is None or text.lower().startswith("basic")


@pytest.mark.parametrize(
    "text",
    ["Basic ====", "Basic w6k6", "Basic \xe9", "Bearer", "Bearer a.b", "Bearer \xe9", "Digest x"],
)
def test_damaged_headers_have_no_token(text: str) -> None:
    assert token_in(text) is None


def test_a_user_is_found_by_its_token_alone() -> None:
    users = Users.of({"a": User(tokens=(kept(ONE),)), "b": User(tokens=(kept(TWO, NOW + 5),))})
    assert users.owner_of(ONE, NOW) == Principal.user("a")
    assert users.owner_of(TWO, NOW + 4) == Principal.user("b")
    assert users.owner_of(TWO, NOW + 5) is None, "it has expired"
    assert users.owner_of(Token(ONE.id, TWO.secret), NOW) is None
    assert users.owner_of(Token(TWO.id, ONE.secret), NOW) is None
    assert users.owner_of(Token("unknown_", ONE.secret), NOW) is None
    assert users.access_of(Principal.user("c")) == Access()
    assert users.access_of(ANONYMOUS) == Access()


def test_a_user_has_two_tokens_and_then_none_too_many() -> None:
    user = User().with_token(kept(ONE), NOW).with_token(kept(TWO, NOW + 1), NOW)
    assert len(user.tokens) == MAX_TOKENS
    third = new_token(bytes(RANDOM_BYTES))
    with pytest.raises(PolicyViolation, match="revoke one"):
        user.with_token(kept(third), NOW)
    later = user.with_token(kept(third), NOW + 1)
    assert third.id in {one.id for one in later.tokens}, "an expired one does not count"
    assert [one.id for one in later.without_token(ONE.id).tokens] == [TWO.id, third.id]
    with pytest.raises(NotFound):
        later.without_token("unknown_")


def test_a_clock_that_is_ahead_takes_no_token_away() -> None:
    """One controller's clock was: the tokens that others still found valid were gone for good."""
    day_ms = 86_400_000
    user = User().with_token(kept(ONE, NOW + day_ms), NOW)
    user = user.with_token(kept(TWO, NOW + 9 * day_ms), NOW + 2 * day_ms)
    assert Users.of({"a": user}).owner_of(ONE, NOW + 1) == Principal.user("a")


def test_few_expired_tokens_are_kept() -> None:
    user = User()
    for number in range(20):
        made = new_token(number.to_bytes(RANDOM_BYTES))
        user = user.with_token(kept(made, NOW + number), NOW + number)
    last = [kept(new_token(n.to_bytes(RANDOM_BYTES))).id for n in range(20 - MAX_EXPIRED - 1, 20)]
    assert [one.id for one in user.tokens] == last


def test_the_grants_of_a_user_are_bounded() -> None:
    some = Grant(Role.VIEWER, tuple(f"t{number}" for number in range(150)), ())
    others = Grant(Role.CONSUMER, tuple(f"t{number}" for number in range(51)), ())
    assert User().granted([some]).grants == (some,)
    with pytest.raises(InvalidRequest, match="at most 200"):
        User().granted([some, others])
    with pytest.raises(InvalidRequest, match="topics, groups or both"):
        User().granted([Grant(Role.VIEWER, (), ())])


def test_a_grant_that_does_not_say_for_what_is_none() -> None:
    with pytest.raises(msgspec.ValidationError):
        decode_user(b'{"grants":[{"role":"admin"}]}')


def test_a_damaged_hash_is_nobodys() -> None:
    damaged = KeptToken(ONE.id, "\N{LATIN SMALL LETTER E WITH ACUTE}" * 64, NOW)
    assert Users.of({"a": User(tokens=(damaged,))}).owner_of(ONE, NOW) is None


def test_a_user_is_kept_as_json_without_secrets() -> None:
    user = User((Grant(Role.CONSUMER, ("a*",), ("g",)),), (kept(ONE),), NOW)
    data = encode_user(user)
    assert decode_user(data) == user
    assert ONE.secret.encode() not in data


# -- rights ----------------------------------------------------------------------


@pytest.mark.parametrize("pattern", ["", "a*b", "**", "*a", "x" * 256])
def test_malformed_patterns_are_refused(pattern: str) -> None:
    with pytest.raises(InvalidRequest):
        check_patterns("topics", [pattern])


def test_a_pattern_covers_a_name_or_a_prefix() -> None:
    assert Names.of(["orders.*"]).has("orders.eu")
    assert not Names.of(["orders.*"]).has("orders")
    assert Names.of(["orders"]).has("orders")
    assert not Names.of(["orders"]).has("orders.eu")
    assert Names.of(["*"]).has("anything")
    assert not Names().has("anything")


@given(st.lists(TOPICS, max_size=4), st.lists(TOPICS, max_size=4), TOPICS)
def test_names_are_found_by_their_prefixes(
    names: list[str], prefixes: list[str], name: str
) -> None:
    found = Names.of([*names, *(f"{one}*" for one in prefixes)])
    assert found.has(name) is (name in names or name.startswith(tuple(prefixes)))
    assert found.has_all_with(name) is name.startswith(tuple(prefixes))


@given(TOPICS, TOPICS)
def test_a_grant_for_some_topics_allows_these_alone(own: str, other: str) -> None:
    access = Access((Grant(Role.PRODUCER, (own,), ()),))
    assert access.allows(Action.WRITE, "topic", own)
    assert access.allows(Action.WRITE, "topic", other) is (own == other)
    assert not access.allows(Action.READ, "topic", own)
    assert access.allows_somewhere(Action.WRITE, "topic")
    assert not access.allows_all(Action.WRITE, "topic")


def test_only_a_grant_for_everything_counts_for_the_cluster() -> None:
    for role in Role:
        whole, part = Access((Grant.of_all(role),)), Access((Grant(role, ("a*",), ()),))
        other = Access((Grant(role, ("*",), ("g",)),))
        for action in Action:
            named = ("cluster", action) in RIGHTS_OF_ROLES[role]
            assert whole.allows(action, "cluster") is named
            limited = named and action is Action.CONNECT
            assert part.allows(action, "cluster") is limited
            assert other.allows(action, "cluster") is limited


def test_each_role_has_its_own_job() -> None:
    def may(role: Role, action: Action, kind: str = "topic") -> bool:
        return (kind, action) in RIGHTS_OF_ROLES[role]

    assert [role for role in Role if may(role, Action.READ)] == [Role.CONSUMER, Role.ADMIN]
    assert [role for role in Role if may(role, Action.WRITE)] == [Role.PRODUCER, Role.ADMIN]
    assert [role for role in Role if may(role, Action.OPERATE)] == [Role.OPERATOR, Role.ADMIN]
    assert [one for one in Role if may(one, Action.AUDIT, "cluster")] == [Role.AUDITOR, Role.ADMIN]
    assert [one for one in Role if may(one, Action.ADMINISTER, "cluster")] == [Role.ADMIN]


@given(
    st.lists(
        st.sampled_from(["a", "b", r"\.", ".", "a*", "b?", "[ab]", "(a|b)", r"\d"]), max_size=5
    ),
    st.text("ab.1", max_size=5),
)
def test_whatever_a_pattern_matches_begins_with_its_prefix(parts: list[str], name: str) -> None:
    pattern = "".join(parts)
    if re.fullmatch(pattern, name):
        assert name.startswith(prefix_of_pattern(pattern))


@pytest.mark.parametrize(
    ("pattern", "prefix"),
    [
        (r"orders\..*", "orders."),
        ("orders", "orders"),
        ("orders*", "order"),
        ("a|b", ""),
        (".*", ""),
        (r"a\pL", "a"),
        ("a(?i){0}.*", ""),
        (r"orders\.(eu)", ""),
        ("(?i)orders", ""),
        ("ab{0}", "a"),
    ],
)
def test_the_prefix_of_a_pattern(pattern: str, prefix: str) -> None:
    assert prefix_of_pattern(pattern) == prefix


# -- the caller ------------------------------------------------------------------

ALICE = Caller(Principal.user("alice"), Access((Grant(Role.CONSUMER, ("orders.*",), ("g",)),)))


def test_what_a_request_names_in_its_body_is_checked() -> None:
    require(Action.READ, "topic", ["anything"])
    with caller_scope(ALICE):
        assert current_actor() == "user:alice"
        require(Action.READ, "topic", ["orders.eu", "orders.us"])
        require_matches(Action.READ, "topic", r"orders\.e.*")
        with pytest.raises(Forbidden, match=r"user:alice may not read topic 'other'"):
            require(Action.READ, "topic", ["orders.eu", "other"])
        with pytest.raises(Forbidden):
            require_matches(Action.READ, "topic", "orders.*")
        with pytest.raises(Forbidden):
            require_all(Action.READ, "topic")
    assert current_actor() == "operator"


def test_what_may_not_be_seen_is_left_out() -> None:
    known = ["orders.eu", "other"]
    assert visible("topic", None, lambda: known) is None
    assert version_for_caller("1-2") == "1-2"
    with caller_scope(ALICE):
        assert visible("topic", None, lambda: known) == ["orders.eu"]
        assert visible("topic", ["other"], lambda: known) == []
        assert version_for_caller("1-2") != "1-2"
    with caller_scope(NOBODY):
        assert visible("topic", None, lambda: known) == []


def test_everybody_may_do_everything_and_nobody_nothing() -> None:
    for kind in ("cluster", "topic", "group"):
        for action in Action:
            assert EVERYBODY.access.allows(action, kind, "x")
            assert not NOBODY.access.allows(action, kind, "x")


def test_a_route_without_a_stated_right_stops_the_service() -> None:
    check_rights(["produce", "healthz", "heartbeat"])
    with pytest.raises(ValueError, match="new_route"):
        check_rights(["produce", "new_route"])


def test_no_operation_has_two_kinds_of_rights() -> None:
    assert not NEEDS.keys() & PUBLIC
    assert not NEEDS.keys() & INTERNAL_OPERATIONS
    assert not PUBLIC & INTERNAL_OPERATIONS
    assert {"healthz", "readyz"} == PUBLIC
