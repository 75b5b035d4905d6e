"""`leadline users`: who may do what, and the tokens by which users show who they are."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from leadline_cli.admin import AdminContext, Yes, admin_command, command_group
from leadline_cli.credentials import write_private
from leadline_cli.output import (
    EXIT_REFUSED,
    EXIT_UNKNOWN,
    EXIT_USAGE,
    confirmed,
    print_line,
    print_note,
    print_problem,
    print_table,
)
from leadline_client.errors import LeadlineError, StaleVersion
from leadline_common.access.rights import Role

if TYPE_CHECKING:
    from leadline_client.client import Client

app = command_group("Create users, grant them roles, and make their tokens.")

Name = Annotated[str, typer.Argument(metavar="USER", help="The user's name.")]
RoleOption = Annotated[Role, typer.Option("--role", help="What the user may do.")]
Topics = Annotated[
    list[str] | None,
    typer.Option("--topic", metavar="NAME|PREFIX*", help="For these topics only; repeatable."),
]
Groups = Annotated[
    list[str] | None,
    typer.Option("--group", metavar="NAME|PREFIX*", help="For these groups only; repeatable."),
]

Rate = Annotated[
    str | None, typer.Option(metavar="NUMBER|default", help="Per second; 0 is no quota.")
]

_USERS: Final = "/v1/users"
_DEFAULT: Final = "default"
_ALL: Final = "*"
_DAY_MS: Final = 86_400_000
_ATTEMPTS: Final = 5


@app.command("list")
@admin_command
def list_users(admin: AdminContext) -> None:
    """List users with their grants, and the ids of their tokens."""
    with admin.connect(reads=True) as client:
        found = client.administer("GET", _USERS)
    admin.show(found, _print_users)


@app.command()
@admin_command
def create(
    admin: AdminContext,
    name: Name,
    *,
    role: Annotated[
        Role | None, typer.Option("--role", help="What the user may do; without it, nothing yet.")
    ] = None,
    topic: Topics = None,
    group: Groups = None,
) -> None:
    """Create a user, who gets a token by `leadline users token`."""
    grants = [] if role is None else [_grant(role, topic, group)]
    with admin.connect() as client:
        made = client.administer("POST", _USERS, {"name": name, "grants": grants}, once=True)
    admin.show(made, f"user {name} was created; `leadline users token {name}` makes a token")


@app.command()
@admin_command
def grant(
    admin: AdminContext, name: Name, *, role: RoleOption, topic: Topics = None, group: Groups = None
) -> None:
    """Grant a user one more role, for all topics and groups or for some."""
    more = _grant(role, topic, group)
    with admin.connect() as client:
        changed = replace_part(
            client, name, "grants", lambda user: {"grants": [*user["grants"], more]}
        )
    admin.show(changed, f"user {name} is a {role} now; services know it within seconds")


@app.command()
@admin_command
def revoke(admin: AdminContext, name: Name, *, role: RoleOption) -> None:
    """Take a role from a user, for whichever topics and groups it was granted."""

    def without_role(user: dict[str, Any]) -> dict[str, Any]:
        return {"grants": [one for one in user["grants"] if one["role"] != role]}

    with admin.connect() as client:
        changed = replace_part(client, name, "grants", without_role)
    admin.show(changed, f"user {name} is no {role} any more; services know it within seconds")


@app.command()
@admin_command
def quotas(
    admin: AdminContext,
    name: Name,
    *,
    produce_bytes: Rate = None,
    fetch_bytes: Rate = None,
    requests: Rate = None,
    partition_changes: Rate = None,
) -> None:
    """Show the quotas of a user, or change some: per second, and ten times as much at once.

    A quota is a number, 0 for no limit, or `default` for that of the cluster's settings
    (`leadline configs set quota.produce.bytes.per.s=…`). Those of bytes hold on each broker, and
    that of requests on each service.
    """
    given = {
        "produce_bytes_per_s": produce_bytes,
        "fetch_bytes_per_s": fetch_bytes,
        "requests_per_s": requests,
        "partition_changes_per_s": partition_changes,
    }
    wanted = {one: _rate(text) for one, text in given.items() if text is not None}
    with admin.connect() as client:
        if wanted:
            found = replace_part(client, name, "quotas", lambda user: user["quotas"] | wanted)
        else:
            found = client.administer("GET", f"{_USERS}/{name}")
    admin.show(found, _print_quotas)


@app.command()
@admin_command
def delete(admin: AdminContext, name: Name, *, yes: Yes = False) -> None:
    """Delete a user with all its tokens."""
    confirmed(f"Delete user {name}?", yes=yes)
    with admin.connect() as client:
        gone = client.administer("DELETE", f"{_USERS}/{name}", once=True)
    admin.show(gone, f"user {name} was deleted; services refuse its tokens within seconds")


@app.command()
@admin_command
def token(
    admin: AdminContext,
    name: Name,
    *,
    days: Annotated[
        int | None, typer.Option(min=1, help="How long it is valid; without it, for ever.")
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option("--file", help="Write it into this file, which only you can read."),
    ] = None,
) -> None:
    """Make a token for a user, and print it: nobody can read it again.

    A user has at most two at a time: make the new one, replace the old one wherever it is used, and
    then revoke the old one.
    """
    wanted = {"expires_in_ms": None if days is None else days * _DAY_MS}
    with admin.connect() as client:
        made = client.administer("POST", f"{_USERS}/{name}/tokens", wanted)
        if file is not None:
            _keep(client, name, made, file)
    if file is None:
        admin.show(made, made["token"])
        return
    known = {"id": made["id"], "expires_at": made["expires_at"], "file": str(file)}
    admin.show(known, f"token {made['id']} of user {name} is in {file}")


def _keep(client: Client, name: str, made: dict[str, Any], file: Path) -> None:
    """Write a new token into a file; revoke it if that fails, because nobody else has it.

    Raises:
        typer.Exit: with 1 if the token was revoked, with 3 if it may still be valid.

    """
    try:
        write_private(file, f"{made['token']}\n".encode())
    except OSError as problem:
        lost = f"cannot write {file}: {problem.strerror}"
        try:
            client.administer("DELETE", f"{_USERS}/{name}/tokens/{made['id']}", once=True)
        except LeadlineError as error:
            print_problem(f"{lost}; and the token was not revoked: {error.message}")
            print_note(f"  what to do: `leadline users revoke-token {name} {made['id']}`")
            raise typer.Exit(EXIT_UNKNOWN) from None
        print_problem(f"{lost}: no token was made")
        raise typer.Exit(EXIT_REFUSED) from None


@app.command("revoke-token")
@admin_command
def revoke_token(
    admin: AdminContext,
    name: Name,
    token_id: Annotated[str, typer.Argument(metavar="ID", help="What is before the token's dot.")],
) -> None:
    """Revoke a token of a user."""
    with admin.connect() as client:
        changed = client.administer("DELETE", f"{_USERS}/{name}/tokens/{token_id}", once=True)
    admin.show(changed, f"token {token_id} was revoked; services refuse it within seconds")


@app.command("create-admin")
def create_admin(
    name: Name,
    *,
    zookeeper: Annotated[
        str, typer.Option("--zookeeper", metavar="HOSTS", help="As in zookeeper.connect.")
    ],
    credentials: Annotated[
        Path, typer.Option("--zookeeper-credentials", help="The file of ZooKeeper's operator.")
    ] = Path("credentials/zookeeper-operator"),
    ca: Annotated[
        Path | None,
        typer.Option("--zookeeper-ca", help="As zookeeper.tls.ca.file: connect over TLS."),
    ] = None,
    file: Annotated[
        Path, typer.Option("--file", help="The token; made if the file does not exist.")
    ] = Path("credentials/admin.token"),
) -> None:
    """Make an administrator in ZooKeeper itself: the first of a cluster, or after all were lost."""
    first_admin = import_module("leadline_cli.first_admin")  # kazoo takes its time
    secure_cluster = import_module("leadline_cli.secure_cluster")
    login = import_module("leadline_common.zk.credentials")
    errors = import_module("leadline_common.zk.errors")
    refused = import_module("leadline_client.errors").LeadlineError
    try:
        user = login.read_credentials(credentials)
        if ca is not None:
            user = replace(user, tls=import_module("leadline_common.zk.tls").ZkTls(ca))
        shown_token = secure_cluster.token_in_file(file)
        asyncio.run(first_admin.make_admin(zookeeper, user, name, shown_token, restore=True))
    except (ValueError, OSError) as problem:  # unusable files
        print_problem(str(problem))
        raise typer.Exit(EXIT_USAGE) from None
    except (refused, errors.ZkError) as problem:
        print_problem(str(problem))
        raise typer.Exit(EXIT_REFUSED) from None
    print_line(f"user {name} is an administrator; its token is in {file}")


def replace_part(
    client: Client, name: str, part: str, change: Callable[[dict[str, Any]], dict[str, Any]]
) -> dict[str, Any]:
    """Replace the grants or the quotas of a user by what `change` makes of the user.

    If somebody else changes the user meanwhile, it begins again: neither change is undone.

    Raises:
        LeadlineError: the cluster refuses it, or others keep changing the user.

    """
    for _ in range(_ATTEMPTS - 1):
        with suppress(StaleVersion):
            return _replace_part_once(client, f"{_USERS}/{name}", part, change)
    return _replace_part_once(client, f"{_USERS}/{name}", part, change)


def _replace_part_once(
    client: Client, path: str, part: str, change: Callable[[dict[str, Any]], dict[str, Any]]
) -> dict[str, Any]:
    found = client.administer("GET", path)
    # A controller of an earlier release tells no version, and takes no condition.
    headers = {"If-Match": f'"{found["version"]}"'} if "version" in found else {}
    return client.administer("PUT", f"{path}/{part}", change(found), headers=headers, once=True)


def _grant(role: Role, topics: list[str] | None, groups: list[str] | None) -> dict[str, Any]:
    return {"role": role.value, "topics": topics, "groups": groups}


def _rate(text: str) -> int | None:
    if text != _DEFAULT and not text.isdecimal():
        raise typer.BadParameter(f"a quota is a number or `{_DEFAULT}`, not {text!r}")
    return None if text == _DEFAULT else int(text)


def _print_quotas(found: dict[str, Any]) -> None:
    shown = {None: _DEFAULT, 0: "none"}
    rows = [(name, str(shown.get(value, value))) for name, value in found["quotas"].items()]
    print_table(f"Quotas of {found['name']}", ("quota", "per second"), rows)


def _print_users(found: dict[str, Any]) -> None:
    rows = [
        (
            user["name"],
            "; ".join(_text_of(one) for one in user["grants"]) or "-",
            ", ".join(one["id"] for one in user["tokens"]) or "-",
        )
        for user in found["users"]
    ]
    print_table("Users", ("user", "grants", "tokens"), rows)


def _text_of(one: dict[str, Any]) -> str:
    if one["topics"] == one["groups"] == [_ALL]:
        return str(one["role"])
    limits = [f"{kind} {', '.join(one[kind])}" for kind in ("topics", "groups") if one[kind]]
    return f"{one['role']} ({'; '.join(limits)})"
