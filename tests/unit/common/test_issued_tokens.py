"""Which tokens of an OpenID Connect issuer are accepted, and whom they name."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from leadline_client.errors import Unauthorized, UsersNotRead
from leadline_common.access.issued_tokens import (
    LEEWAY_S,
    Issuer,
    IssuerKeys,
    UnknownKey,
    WrongSignature,
    issued_token_in,
    user_of,
)
from leadline_common.access.principals import Principal
from leadline_common.http.issuer import (
    DOUBT_S,
    LATE_S,
    RETRY_S,
    IssuerClient,
    issuer_of,
    reading_keys,
)
from leadline_common.identity import UnusableCredentials
from leadline_common.settings import BrokerSettings
from tests.support.issuer import AUDIENCE, TestIssuer


@pytest.fixture(scope="module")
def issuer() -> TestIssuer:
    made = TestIssuer("https://id.example")
    made.add_rsa("a")
    made.add_ec("b")
    return made


def found(issuer: TestIssuer, token: str, **rules: str) -> Principal:
    return user_of(token, IssuerKeys.of(issuer.key_set), Issuer(issuer.url, AUDIENCE, **rules))


def test_a_token_names_its_user(issuer: TestIssuer) -> None:
    assert found(issuer, issuer.token("alice", "a")) == Principal("user", "alice")
    assert found(issuer, issuer.token("bob", "b", algorithm="ES256")) == Principal("user", "bob")
    several = issuer.token("alice", "a", aud=["other", AUDIENCE])
    assert found(issuer, several) == Principal("user", "alice")


def test_a_claim_and_a_prefix_name_the_user(issuer: TestIssuer) -> None:
    token = issuer.token("1234", "a", email="alice@example.org")
    name = found(issuer, token, user_claim="email", user_prefix="oidc-").name
    assert name == "oidc-alice@example.org"


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"exp": int(time.time()) - LEEWAY_S - 5}, "has expired"),
        ({"nbf": int(time.time()) + 3600}, "not valid yet"),
        ({"iat": int(time.time()) + 3600}, "not valid yet"),
        ({"aud": "another"}, "another audience"),
        ({"iss": "https://other.example"}, "another issuer"),
        *[({name: None}, "claim is missing") for name in ("exp", "iat", "sub")],
        ({"exp": float("inf")}, "cannot be verified"),
        ({"aud": None}, "refused"),
        ({"iss": None}, "refused"),
        ({"sub": "../admin"}, "no user's name"),
        ({"sub": ""}, "no user's name"),
        ({"sub": "a\nb"}, "no user's name"),
        ({"sub": "é"}, "no user's name"),
    ],
)
def test_what_is_not_for_this_cluster_now_is_refused(
    issuer: TestIssuer, changed: dict[str, Any], reason: str
) -> None:
    with pytest.raises(Unauthorized, match=reason):
        found(issuer, issuer.token("alice", "a", **changed))


def test_a_claim_that_is_no_text_names_nobody(issuer: TestIssuer) -> None:
    with pytest.raises(Unauthorized, match="no user's name"):
        found(issuer, issuer.token("alice", "a", groups=["admin"]), user_claim="groups")


@pytest.mark.parametrize("verified", [False, "false", "true", 1, 0, []])
def test_an_address_that_the_issuer_has_not_verified_names_nobody(
    issuer: TestIssuer, verified: object
) -> None:
    claims: dict[str, Any] = {"email": "admin@example.org", "email_verified": verified}
    token = issuer.token("1234", "a", **claims)
    with pytest.raises(Unauthorized, match="not verified"):
        found(issuer, token, user_claim="email")
    assert found(issuer, token).name == "1234", "it is no matter of other claims"
    for known in ({"email": "admin@example.org"}, {**claims, "email_verified": True}):
        token = issuer.token("1234", "a", **known)
        assert found(issuer, token, user_claim="email").name == "admin@example.org"


def test_nobody_but_the_issuer_signs(issuer: TestIssuer) -> None:
    strange = rsa.generate_private_key(65537, 2048)
    with pytest.raises(WrongSignature, match="signature"):
        found(issuer, issuer.token("alice", "a", key=strange))


def test_a_token_does_not_choose_its_algorithm(issuer: TestIssuer) -> None:
    """RFC 8725, 3.1: none at all, and the public key as the secret of an HMAC."""
    head, body, _ = issuer.token("alice", "a").split(".")
    unsigned = _encoded({"alg": "none", "kid": "a"}) + f".{body}."
    public = issuer.keys["a"].public_key()
    pem = public.public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    algorithm = jwt.get_algorithm_by_name("HS256")
    signed = f"{_encoded({'alg': 'HS256', 'kid': 'a'})}.{body}"
    forged = base64.urlsafe_b64encode(algorithm.sign(signed.encode(), pem)).rstrip(b"=").decode()
    for token in (unsigned, f"{signed}.{forged}", f"{head}.{body}.AAAA"):
        with pytest.raises((Unauthorized, WrongSignature)):
            found(issuer, token)


def test_keys_that_two_share_or_that_are_for_other_uses_are_left_out(issuer: TestIssuer) -> None:
    good, *_ = issuer.key_set["keys"]
    secret = {"kty": "oct", "k": "c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0LQ", "kid": "s"}
    encrypting = {**good, "kid": "e", "use": "enc"}
    damaged = {**good, "kid": "d", "n": 7}
    hmac = {**good, "kid": "h", "alg": "HS256"}
    unnamed = [{**good, "kid": name} for name in (["a"], {"a": 1}, 7, None)]
    keys = IssuerKeys.of({"keys": [secret, encrypting, damaged, hmac, "x", None, *unnamed, good]})
    assert list(keys.by_id) == ["a"]
    nothing: list[object] = [{"keys": [secret]}, {"keys": []}, {"keys": 3}, {}, [], None]
    for unusable in nothing:
        with pytest.raises(ValueError, match="no public key"):
            IssuerKeys.of(unusable)


def test_a_key_that_states_its_algorithm_is_used_with_no_other(issuer: TestIssuer) -> None:
    good, *_ = issuer.key_set["keys"]
    keys = IssuerKeys.of({"keys": [{**good, "alg": "RS512"}]})
    rules = Issuer(issuer.url, AUDIENCE)
    assert user_of(issuer.token("alice", "a", algorithm="RS512"), keys, rules).name == "alice"
    with pytest.raises(Unauthorized):
        user_of(issuer.token("alice", "a"), keys, rules)


def test_a_weak_key_is_refused() -> None:
    key = rsa.generate_private_key(65537, 1024)  # noqa: S505 - that is what it is about
    weak = TestIssuer("https://id.example", {"w": key})
    with pytest.warns(jwt.InsecureKeyLengthWarning):
        token = weak.token("alice", "w")
    with pytest.raises(Unauthorized):
        found(weak, token)


def test_an_unknown_key_is_told_apart(issuer: TestIssuer) -> None:
    token = issuer.token("alice", "new", key=issuer.keys["a"])
    with pytest.raises(UnknownKey):
        found(issuer, token)


def test_a_token_that_names_no_key_is_of_the_only_one(issuer: TestIssuer) -> None:
    token = issuer.token("alice", "", key=issuer.keys["a"])
    with pytest.raises(UnknownKey):
        found(issuer, token)
    only = IssuerKeys.of({"keys": issuer.key_set["keys"][:1]})
    assert user_of(token, only, Issuer(issuer.url, AUDIENCE)).name == "alice"


def test_clocks_may_differ_a_little(issuer: TestIssuer) -> None:
    now = int(time.time())
    near: list[dict[str, Any]] = [{"exp": now - LEEWAY_S + 10}, {"nbf": now + LEEWAY_S}]
    for times in (*near, {"iat": now + LEEWAY_S}):
        assert found(issuer, issuer.token("alice", "a", **times)).name == "alice"


def test_only_bearer_tokens_of_three_parts_are_the_issuers(issuer: TestIssuer) -> None:
    token = issuer.token("alice", "a")
    assert issued_token_in(f"Bearer {token}") == token
    assert issued_token_in(f"bearer  {token} ") == token
    for other in (f"Basic {token}", "Bearer abcdefgh.secret", f"Bearer {token}.x", "Bearer ..", ""):
        assert issued_token_in(other) is None


@asynccontextmanager
async def client_of(issuer: TestIssuer, now: list[float]) -> AsyncIterator[IssuerClient]:
    """A client that has read the issuer's keys, and whose clock shows the one number of `now`."""
    async with issuer.serving():
        client = IssuerClient(Issuer(issuer.url, AUDIENCE), clock=lambda: now[0])
        async with reading_keys(client):
            await until(lambda: client._is_read, "the keys are read")
            yield client


async def test_keys_are_read_again_when_a_token_names_a_new_one() -> None:
    issuer = TestIssuer()
    issuer.add_rsa("old")
    now = [0.0]
    async with issuer.serving():
        client = IssuerClient(Issuer(issuer.url, AUDIENCE), clock=lambda: now[0])
        with pytest.raises(UsersNotRead):
            client.user_of(issuer.token("alice", "old"))
        async with reading_keys(client):
            await until(lambda: client.keys is not None, "the keys are read")
            assert client.user_of(issuer.token("alice", "old")).name == "alice"
            issuer.add_rsa("new")
            token = issuer.token("alice", "new")
            with pytest.raises(UsersNotRead):  # Maybe it is newer than what was read just now.
                client.user_of(token)
            now[0] += RETRY_S
            with pytest.raises(UsersNotRead, match="read again"):
                client.user_of(token)
            await until(lambda: issuer.reads == 2, "the keys are read again")
            await until(lambda: len(client.keys.by_id if client.keys else ()) == 2, "the new")
            assert client.user_of(token).name == "alice"


async def test_a_key_may_be_new_although_another_was_not_there_just_now() -> None:
    issuer = TestIssuer()
    issuer.add_rsa("old")
    strange = issuer.token("mallory", "strange", key=issuer.keys["old"])
    now = [0.0]
    async with client_of(issuer, now) as client:
        now[0] += RETRY_S
        with pytest.raises(UsersNotRead):
            client.user_of(strange)
        await until(lambda: bool(client._missing), "the keys are read for it")
        issuer.add_rsa("new")
        with pytest.raises(UsersNotRead):
            client.user_of(issuer.token("alice", "new"))
        for number in range(200):  # Anybody can name as many as that.
            with pytest.raises(UsersNotRead):
                client.user_of(issuer.token("m", f"{number}", key=issuer.keys["old"]))
        with pytest.raises(Unauthorized, match="no key"):
            client.user_of(strange)
        now[0] += RETRY_S
        with pytest.raises(UsersNotRead):
            client.user_of(issuer.token("alice", "new"))
        await until(lambda: len(client.keys.by_id if client.keys else ()) == 2, "the new")
        assert client.user_of(issuer.token("alice", "new")).name == "alice"


async def test_defect_47_a_key_that_replaces_another_of_its_id_is_read_soon() -> None:
    """The tokens of such an issuer were refused for five minutes."""
    issuer = TestIssuer()
    issuer.add_rsa("a")
    now = [0.0]
    async with client_of(issuer, now) as client:
        former = issuer.token("alice", "a")
        issuer.add_rsa("a")
        token = issuer.token("alice", "a")
        now[0] += RETRY_S
        with pytest.raises(UsersNotRead, match="read again"):
            client.user_of(token)
        await until(lambda: issuer.reads == 2 and client._is_read, "the keys are read again")
        assert client.user_of(token).name == "alice"
        with pytest.raises(Unauthorized, match="signature"):
            client.user_of(former)


@pytest.mark.parametrize("answers", [True, False])
async def test_forged_signatures_cause_one_read_a_minute(*, answers: bool) -> None:
    issuer = TestIssuer()
    issuer.add_rsa("a")
    forged = issuer.token("m", "a", key=rsa.generate_private_key(65537, 2048))
    now = [0.0]
    async with client_of(issuer, now) as client:
        with pytest.raises(Unauthorized, match="signature"):  # The keys were read just now.
            client.user_of(forged)
        issuer.status = 200 if answers else 500
        for number in range(2, 4):
            now[0] += DOUBT_S - RETRY_S
            for _ in range(3):
                with pytest.raises(UsersNotRead):
                    client.user_of(forged)
            await until(lambda: client._tried_at == now[0], "the keys are read again")
            assert issuer.reads == number
            now[0] += RETRY_S
            for _ in range(3):
                with pytest.raises(Unauthorized, match="signature"):
                    client.user_of(forged)
            assert not client._wanted.is_set()


async def test_keys_stay_in_use_while_the_issuer_cannot_be_read() -> None:
    issuer = TestIssuer()
    issuer.add_rsa("old")
    now = [0.0]
    async with client_of(issuer, now) as client:
        kept, token = dict(issuer.keys), issuer.token("alice", "old")
        issuer.keys.clear()
        now[0] += RETRY_S
        with pytest.raises(UsersNotRead):
            client.user_of(issuer.token("alice", "new", key=kept["old"]))
        await until(lambda: issuer.reads == 2, "an empty set is read")
        assert client.user_of(token).name == "alice"
        with pytest.raises(UsersNotRead):  # Nobody knows whether the issuer has it.
            client.user_of(issuer.token("alice", "new", key=kept["old"]))


async def test_a_service_says_that_it_could_not_read_the_keys() -> None:
    issuer = TestIssuer(status=500)
    issuer.add_rsa("a")
    now = [0.0]

    def told() -> str:
        problems = [*client.problems()]
        assert all(problem.serving for problem in problems), "other users notice nothing"
        return "".join(problem.reason for problem in problems)

    async def read_again() -> None:
        now[0] += LATE_S
        client._wanted.set()
        await until(lambda: client._tried_at == now[0], "it was tried again")

    async with issuer.serving():
        client = IssuerClient(Issuer(issuer.url, AUDIENCE), clock=lambda: now[0])
        assert told() == "", "it has not tried yet"
        async with reading_keys(client):
            await until(lambda: client._tried_at == 0, "the keys are asked for")
            assert f"the issuer {issuer.url} could not be read for 0 s" in told()
            assert "status 500): its tokens get 503" in told()
            issuer.status = 200
            await read_again()
            assert told() == ""
            issuer.status = 503
            await read_again()
            assert told() == "", "it may be a moment"
            await read_again()
            assert "could not be read for 60 s" in told()
            assert "status 503): tokens that name a new key get 503" in told()
            issuer.status = 200
            await read_again()
            assert told() == ""


async def test_an_issuer_that_does_not_answer_in_time_is_named_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("leadline_common.http.issuer._TIMEOUT", aiohttp.ClientTimeout(total=0.05))
    issuer = TestIssuer()
    issuer.add_rsa("a")
    issuer.answers.clear()
    async with issuer.serving():
        client = IssuerClient(Issuer(issuer.url, AUDIENCE))
        async with reading_keys(client):
            await until(lambda: client._tried_at > float("-inf"), "it was tried")
            (problem,) = client.problems()
            assert "(no answer within 10 s)" in problem.reason
            issuer.answers.set()


@pytest.mark.parametrize("answer", [b"[" * 100_000, b"<html>", b"", b"\xff", b'{"keys": [[]]}'])
async def test_an_answer_that_is_no_set_of_keys_does_not_end_the_reading(answer: bytes) -> None:
    issuer = TestIssuer(answer=answer)
    issuer.add_rsa("a")
    now = [0.0]
    async with issuer.serving():
        client = IssuerClient(Issuer(issuer.url, AUDIENCE), clock=lambda: now[0])
        async with reading_keys(client):
            await until(lambda: client._tried_at == 0, "the answer is read")
            assert client.keys is None
            issuer.answer = None
            client._wanted.set()
            await until(lambda: client.keys is not None, "the keys are read")


@pytest.mark.parametrize(
    ("status", "headers", "padding"),
    [(302, {"Location": "/others"}, 0), (500, {}, 0), (200, {}, 1 << 20)],
)
async def test_keys_from_elsewhere_of_an_error_or_without_end_are_not_used(
    status: int, headers: dict[str, str], padding: int
) -> None:
    issuer = TestIssuer(status=status, headers=headers)
    issuer.add_rsa("a")
    issuer.answer = json.dumps(issuer.key_set).encode() + b" " * padding
    async with issuer.serving():
        client = IssuerClient(Issuer(issuer.url, AUDIENCE), clock=lambda: 0.0)
        async with reading_keys(client):
            await until(lambda: client._tried_at == 0, "the answer is read")
            assert client.keys is None
            issuer.status, issuer.answer = 200, None
            client._wanted.set()
            await until(lambda: client.keys is not None, "the keys are read")


async def test_keys_are_not_read_where_somebody_on_the_way_could_exchange_them() -> None:
    issuer = TestIssuer()
    issuer.add_rsa("a")
    async with issuer.serving():
        issuer.keys_url = issuer.url.replace("127.0.0.1", "0.0.0.0") + "/keys"  # noqa: S104 - no listener: a host that is not named as loopback
        client = IssuerClient(Issuer(issuer.url, AUDIENCE), clock=lambda: 0.0)
        async with reading_keys(client):
            await until(lambda: client._tried_at == 0, "the description is read")
            assert (client.keys, issuer.reads) == (None, 0)


async def test_a_fault_does_not_end_the_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    issuer = TestIssuer()
    issuer.add_rsa("a")
    reading = IssuerKeys.of

    def failing(found: object) -> IssuerKeys:
        monkeypatch.setattr(IssuerKeys, "of", reading)
        raise TypeError("nobody thought of this")

    monkeypatch.setattr(IssuerKeys, "of", failing)
    monkeypatch.setattr("leadline_common.http.issuer.RETRY_S", 0.0)
    async with issuer.serving():
        client = IssuerClient(Issuer(issuer.url, AUDIENCE))
        async with reading_keys(client):
            await until(lambda: client.keys is not None, "the keys are read after all")


async def test_tokens_that_come_while_keys_are_read_cause_no_second_read() -> None:
    issuer = TestIssuer()
    issuer.add_rsa("a")
    strange = issuer.token("alice", "strange", key=issuer.keys["a"])
    now = [0.0]
    async with client_of(issuer, now) as client:
        issuer.answers.clear()
        now[0] += RETRY_S
        for _ in range(2):
            with pytest.raises(UsersNotRead):
                client.user_of(strange)
            await until(lambda: issuer.reads == 2, "the keys are being read again")
        issuer.answers.set()
        await until(lambda: client._is_read, "they are read")
        assert issuer.reads == 2
        with pytest.raises(Unauthorized, match="no key"):
            client.user_of(strange)


async def test_the_description_must_be_the_issuers_own() -> None:
    issuer = TestIssuer()
    issuer.add_rsa("a")
    async with issuer.serving():
        client = IssuerClient(Issuer(f"{issuer.url}/", AUDIENCE))
        async with reading_keys(client):
            await until(lambda: client._tried_at > float("-inf"), "it was tried")
            assert client.keys is None
            assert issuer.reads == 0


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"authentication": "none"}, "authentication=required"),
        ({"oidc_audience": ""}, "oidc.audience"),
        ({"oidc_issuer": "http://id.example"}, "oidc.issuer"),
        ({"oidc_issuer": "ftp://127.0.0.1"}, "oidc.issuer"),
        ({"oidc_jwks_url": "http://id.example/keys"}, "oidc.jwks.url"),
        ({"oidc_ca_file": "/nonexistent/ca.pem"}, "oidc"),
    ],
)
def test_settings_that_would_not_be_safe_are_refused(changed: dict[str, str], named: str) -> None:
    given: dict[str, Any] = {
        "authentication": "required",
        "oidc_issuer": "https://id.example",
        "oidc_audience": AUDIENCE,
        "broker_id": 1,
        "log_dir": "/tmp",  # noqa: S108 - it is not used
    }
    assert issuer_of(BrokerSettings(**given)) is not None
    with pytest.raises(UnusableCredentials, match=named):
        issuer_of(BrokerSettings(**given | changed))


async def until(condition: Callable[[], bool], what: str) -> None:
    """Wait until a condition holds; fail after ten seconds."""
    try:
        async with asyncio.timeout(10):
            while not condition():  # noqa: ASYNC110 - nothing tells when it holds
                await asyncio.sleep(0.01)
    except TimeoutError:
        pytest.fail(f"waited 10 s until {what}")


def _encoded(header: dict[str, str]) -> str:
    return base64.urlsafe_b64encode(json.dumps(header).encode()).rstrip(b"=").decode()
