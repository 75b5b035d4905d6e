"""`deploy/containers`, `deploy/kubernetes` and `deploy/systemd`: each by its linter and our rules.

Every rule is also shown a copy with a mistake planted, which it must find.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from leadline_common.settings import BrokerSettings, ControllerSettings, CoordinatorSettings

# These have no types.
yaml: Any = import_module("yaml")
check_jsonschema: Any = import_module("check_jsonschema").main
kubernetes_validate: Any = import_module("kubernetes_validate")

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
PORTS = {"controller": 9093, "broker": 9092, "coordinator": 9094}


def known() -> set[str]:
    kinds = (BrokerSettings, ControllerSettings, CoordinatorSettings)
    return {name.upper() for kind in kinds for name in kind.model_fields}


def files(deploy: Path) -> list[Path]:
    folders = ("containers", "kubernetes", "systemd")
    return sorted(p for f in folders for p in (deploy / f).glob("*") if p.is_file())


def texts(deploy: Path) -> Iterator[tuple[str, str]]:
    for path in files(deploy):
        if path.name != "requirements.lock":
            yield path.name, path.read_text()


def ran(*command: str | Path) -> list[str]:
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    return [result.stdout + result.stderr] if result.returncode else []


def schemas(deploy: Path) -> list[str]:
    """The validators run in this process: starting one takes seconds, as it compiles grammars."""
    compose = [deploy / "containers/compose.yaml", deploy / "containers/tracing.yaml"]
    command = ("--builtin-schema", "vendor.compose-spec", *map(str, compose))
    result = CliRunner().invoke(check_jsonschema, command)
    found = [result.output] if result.exit_code else []
    for path in sorted((deploy / "kubernetes").glob("*.yaml")):
        if path.name != "kustomization.yaml":
            found += invalid_resources(path.read_text())
    return found


@cache
def invalid_resources(manifest: str) -> tuple[str, ...]:
    """What `kubernetes-validate --strict` says of the resources of a manifest."""
    newest = kubernetes_validate.latest_version()
    found = []
    for resource in filter(None, yaml.safe_load_all(manifest)):
        try:
            kubernetes_validate.validate(resource, newest, strict=True)
        except kubernetes_validate.ValidationError as error:
            found.append(str(error))
    return tuple(found)


def containerfile(deploy: Path) -> list[str]:
    path = deploy / "containers/Containerfile"
    final = path.read_text().rpartition("\nFROM ")[2]
    needed = ("\nUSER 10001:10001\n", "\nHEALTHCHECK ")
    found = [f"no {part.strip()}" for part in needed if part not in final]
    if "--require-hashes -r requirements.lock" not in path.read_text():
        found.append("packages without hashes")
    hadolint = BIN / "hadolint"
    return found + (ran(hadolint, path) if hadolint.exists() else [])


def settings(deploy: Path) -> list[str]:
    found = []
    for file, text in texts(deploy):
        names = re.findall(r"\bLEADLINE_([A-Z_]+)", text)
        names += [n.replace(".", "_").upper() for n in re.findall(r"--set ([a-z.]+)=", text)]
        found += [f"{file}: unknown setting {name}" for name in names if name not in known()]
    return found


def images(deploy: Path) -> list[str]:
    pattern = re.compile(r"^\s*image: (\S+)|^ARG \w+_IMAGE=(\S+)", re.MULTILINE)
    named = [(f, a or b) for f, text in texts(deploy) for a, b in pattern.findall(text)]
    return [f"{f}: {i}" for f, i in named if ":" not in i or i.endswith(":latest") or "/" in i]


def secrets(deploy: Path) -> list[str]:
    pattern = re.compile(r"^.*(PASSWORD|SECRET|TOKEN|_KEY)\w*[=:].*$", re.MULTILINE)
    found = [f"{f}: {m[0]}" for f, text in texts(deploy) for m in pattern.finditer(text)]
    return found + [
        f for f, text in texts(deploy) if "PRIVATE KEY" in text or "secretKeyRef" in text
    ]


def compose(deploy: Path) -> list[str]:
    found = []
    document = yaml.safe_load((deploy / "containers/compose.yaml").read_text())
    for name, service in document["services"].items():
        hardened = service["read_only"] and service["cap_drop"] == ["ALL"]
        if not hardened or service["user"].startswith("0"):
            found.append(f"{name} is not hardened")
        kind = name.rpartition("-")[0]
        port = service["environment"].get("LEADLINE_LISTEN_PORT")
        if kind in PORTS and port != str(PORTS[kind]):
            found.append(f"{name}: port {port}")
        if kind == "zookeeper" and service["environment"].get("ZOO_AUTOPURGE_PURGEINTERVAL") != "1":
            found.append(f"{name} keeps all its transaction logs")
        found += [] if has_session_file(kind, service) else [f"{name}: its session is lost"]
        unknown = {d for d in service.get("depends_on", {}) if d not in document["services"]}
        wanted = {s if isinstance(s, str) else s["source"] for s in service.get("secrets", [])}
        found += [f"{name}: {n}" for n in unknown | (wanted - document["secrets"].keys())]
    return found


def has_session_file(kind: str, service: dict[str, Any]) -> bool:
    """Brokers and controllers have one beside their data; what it is in outlives the container."""
    state = "/var/lib/leadline"
    kept = any(volume.endswith(f":{state}") for volume in service.get("volumes", []))
    session = service["environment"].get("LEADLINE_ZOOKEEPER_SESSION_FILE", "")
    stated = kind != "coordinator" or session.startswith(f"{state}/")
    return kind not in PORTS or (kept and stated)


def tracing(deploy: Path) -> list[str]:
    """All services send their spans to the collector, which has what its pipeline names."""
    services = yaml.safe_load((deploy / "containers/compose.yaml").read_text())["services"]
    added = yaml.safe_load((deploy / "containers/tracing.yaml").read_text())["services"]
    collector = yaml.safe_load((deploy / "containers/tracing/collector.yaml").read_text())
    kinds = {name for name in services if name.rpartition("-")[0] in PORTS}
    found = [f"{name} is not traced" for name in kinds - added.keys()]
    address = collector["receivers"]["otlp"]["protocols"]["http"]["endpoint"]
    endpoint = f"http://collector:{address.rpartition(':')[2]}"
    for name, service in added.items():
        if name == "collector":
            if not service["read_only"] or service["cap_drop"] != ["ALL"]:
                found.append(f"{name} is not hardened")
        elif service["environment"] != {"LEADLINE_TRACING_OTLP_ENDPOINT": endpoint}:
            found.append(f"{name}: {service['environment']}")
    for kind, named in collector["service"]["pipelines"]["traces"].items():
        found += [f"no {kind} {name}" for name in named if name not in collector[kind]]
    return found


def documents(deploy: Path, kind: str) -> list[dict[str, Any]]:
    paths = (deploy / "kubernetes").glob("*.yaml")
    every = (d for path in sorted(paths) for d in yaml.safe_load_all(path.read_text()))
    return [d for d in every if d["kind"] == kind]


def kubernetes(deploy: Path) -> list[str]:
    found = []
    policies = {d["metadata"]["name"]: d["spec"] for d in documents(deploy, "NetworkPolicy")}
    for document in documents(deploy, "StatefulSet"):
        name, pod = document["metadata"]["name"], document["spec"]["template"]["spec"]
        found += hasty(name, document["spec"])
        if pod["enableServiceLinks"]:
            found.append(f"{name} gets variables that are no settings")
        if not pod["securityContext"].get("runAsNonRoot"):
            found.append(f"{name} may run as root")
        for container in [*pod["initContainers"], *pod["containers"]]:
            context = container["securityContext"]
            if not context.get("readOnlyRootFilesystem") or context.get("capabilities") != {
                "drop": ["ALL"]
            }:
                found.append(f"{name}: {container['name']} is not hardened")
        (service,) = pod["containers"]
        ports = {p["containerPort"] for p in service["ports"]}
        opened = {p["port"] for rule in policies[name]["ingress"] for p in rule["ports"]}
        if ports != opened or PORTS[name.removeprefix("leadline-")] not in ports:
            found.append(f"{name}: ports {ports}, opened {opened}")
        probes = [service[p]["httpGet"]["path"] for p in ("livenessProbe", "readinessProbe")]
        if probes != ["/healthz", "/readyz"]:
            found.append(f"{name}: probes {probes}")
        modes = {v["secret"]["defaultMode"] for v in pod["volumes"] if "secret" in v}
        if modes != {0o400}:
            found.append(f"{name}: secrets with modes {modes}")
        found += unreachable(name, service["env"])
        if pod["terminationGracePeriodSeconds"] * 1000 <= shutdown_ms():
            found.append(f"{name}: killed during its controlled shutdown")
    return found


def hasty(service: str, spec: dict[str, Any]) -> list[str]:
    """Kubernetes would go on once a broker is ready, long before it is in its ISRs again."""
    strategy = spec.get("updateStrategy", {}).get("type", "RollingUpdate")
    is_hasty = service == "leadline-broker" and strategy != "OnDelete"
    return [f"{service}: restarted while others catch up"] if is_hasty else []


def unreachable(service: str, environment: list[dict[str, Any]]) -> list[str]:
    """Clients of other namespaces find only names that have the namespace."""
    names = [one["name"] for one in environment]
    values = {one["name"]: one.get("value", "") for one in environment}
    port = PORTS[service.removeprefix("leadline-")]
    url = f"https://$(POD).{service}.$(NAMESPACE):{port}"
    found = []
    if values["LEADLINE_ADVERTISED_URL"] != url:
        found.append(f"{service}: other namespaces do not find {values['LEADLINE_ADVERTISED_URL']}")
    hosts = values["LEADLINE_LISTEN_ALLOWED_HOSTS"].split(",")
    if not {f"$(POD).{service}", f"{service}.$(NAMESPACE)"} <= {*hosts}:
        found.append(f"{service}: refuses its own names, allows {hosts}")
    # A variable is replaced only in those that follow it.
    if names.index("NAMESPACE") > names.index("LEADLINE_ADVERTISED_URL"):
        found.append(f"{service}: NAMESPACE is not known yet")
    return found


def shutdown_ms() -> int:
    return int(BrokerSettings.model_fields["controlled_shutdown_timeout_ms"].default)


HARDENING = (
    *("NoNewPrivileges=yes", "ProtectSystem=strict", "UMask=0077", "User=leadline"),
    *("CapabilityBoundingSet=", "Restart=on-failure", "LimitNOFILE=65536"),
)


def systemd(deploy: Path) -> list[str]:
    found = []
    for path in sorted((deploy / "systemd").glob("*.service")):
        lines = path.read_text().splitlines()
        found += [f"{path.name}: no {line}" for line in HARDENING if line not in lines]
        kind = path.name.removeprefix("leadline-").removesuffix("@.service")
        if kind in PORTS and f"--set listen.port={PORTS[kind]}" not in path.read_text():
            found.append(f"{path.name}: another port than elsewhere")
        if kind not in PORTS and "KillMode=mixed" not in lines:
            found.append(f"{path.name}: stops ZooKeeper and the services at once, not in order")
        if shutil.which("systemd-analyze"):
            result = subprocess.run(
                ["systemd-analyze", "verify", path], capture_output=True, text=True, check=False
            )
            # A line that it cannot read is named by path; the missing program is by unit.
            found += [line for line in result.stderr.splitlines() if str(path) in line]
    return found


CHECKS: list[Callable[[Path], list[str]]] = [
    *(schemas, containerfile, settings, images, secrets, compose, tracing, kubernetes, systemd),
]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_files_are_right(check: Callable[[Path], list[str]]) -> None:
    assert check(ROOT / "deploy") == []


MISTAKES = [
    (schemas, "containers/compose.yaml", "cap_drop:", "cap_dropp:"),
    (schemas, "kubernetes/broker.yaml", "serviceName:", "serviceNames:"),
    (schemas, "kubernetes/controller.yaml", "clusterIP:", "clusterIPP:"),
    (schemas, "kubernetes/coordinator.yaml", "replicas: 2", "replicas: two"),
    (schemas, "kubernetes/network.yaml", "policyTypes:", "policyType:"),
    (schemas, "kubernetes/namespace.yaml", "metadata:", "metadatas:"),
    (containerfile, "containers/Containerfile", "USER 10001:10001", "USER root"),
    (containerfile, "containers/Containerfile", "--require-hashes -r req", "-r req"),
    (settings, "containers/compose.yaml", "LEADLINE_BROKER_RACK", "LEADLINE_BROKER_RAK"),
    (settings, "systemd/broker.env.example", "ZOOKEEPER_CONNECT", "ZOOKEEPER_CONECT"),
    (settings, "systemd/leadline-controller@.service", "--set data.dir", "--set data.dirs"),
    (images, "kubernetes/broker.yaml", "leadline:0.2.0.dev0", "leadline:latest"),
    (images, "containers/Containerfile", "python:3.11-slim", "python"),
    (secrets, "systemd/broker.env.example", "LEADLINE_LISTEN_HOST", "ADMIN_PASSWORD"),
    (compose, "containers/compose.yaml", "read_only: true", "read_only: false"),
    (compose, "containers/compose.yaml", '"9094"', '"9095"'),
    (compose, "containers/compose.yaml", "source: zookeeper-broker,", "source: zookeeper-brokerr,"),
    (compose, "containers/compose.yaml", 'PURGEINTERVAL: "1"', 'PURGEINTERVAL: "0"'),
    (compose, "containers/compose.yaml", "SESSION_FILE: /var/lib/leadline", "SESSION_FILE: /tmp"),
    (schemas, "containers/tracing.yaml", "mem_limit:", "mem_limitt:"),
    (settings, "containers/tracing.yaml", "OTLP_ENDPOINT", "OTLP_ENDPOINTS"),
    (tracing, "containers/tracing.yaml", "  broker-2: {environment: *traced}\n", ""),
    (tracing, "containers/tracing.yaml", "collector:4318", "collector:4317"),
    (tracing, "containers/tracing.yaml", "read_only: true", "read_only: false"),
    (tracing, "containers/tracing/collector.yaml", "exporters: [debug]", "exporters: [file]"),
    (kubernetes, "kubernetes/broker.yaml", "type: OnDelete", "type: RollingUpdate"),
    (kubernetes, "kubernetes/broker.yaml", "Links: false", "Links: true"),
    (kubernetes, "kubernetes/broker.yaml", "runAsNonRoot: true", "runAsNonRoot: false"),
    (kubernetes, "kubernetes/broker.yaml", "defaultMode: 0400", "defaultMode: 0444"),
    (kubernetes, "kubernetes/broker.yaml", "Seconds: 60", "Seconds: 10"),
    (kubernetes, "kubernetes/broker.yaml", "broker.$(NAMESPACE):9092", "broker:9092"),
    (kubernetes, "kubernetes/broker.yaml", "$(POD).leadline-broker,", ""),
    (kubernetes, "kubernetes/coordinator.yaml", "HOSTS, value: ", "HOSTS, value: x"),
    (kubernetes, "kubernetes/network.yaml", "port: 9192", "port: 9199"),
    (kubernetes, "kubernetes/coordinator.yaml", "path: /readyz", "path: /healthz"),
    (systemd, "systemd/leadline-broker@.service", "NoNewPrivileges=yes", "NoNewPrivileges=no"),
    (systemd, "systemd/leadline-controller@.service", "port=9093", "port=9094"),
    (systemd, "systemd/leadline-coordinator@.service", "UMask=0077", "UMask=0022"),
    (systemd, "systemd/leadline-coordinator@.service", "PrivateTmp=", "PrivateTemp="),
    (systemd, "systemd/leadline-host.service", "NoNewPrivileges=yes", "NoNewPrivileges=no"),
    (systemd, "systemd/leadline-host.service", "KillMode=mixed", "KillMode=control-group"),
]


@pytest.mark.parametrize(("check", "file", "right", "wrong"), MISTAKES)
def test_a_mistake_is_found(
    check: Callable[[Path], list[str]], file: str, right: str, wrong: str, tmp_path: Path
) -> None:
    deploy = tmp_path / "deploy"
    shutil.copytree(ROOT / "deploy", deploy)
    text = (deploy / file).read_text()
    assert right in text
    (deploy / file).write_text(text.replace(right, wrong))
    assert check(deploy) != []


def test_plain_yaml_is_in_order() -> None:
    rules = "{extends: relaxed, rules: {line-length: disable}}"
    assert ran(BIN / "yamllint", "-s", "-d", rules, ROOT / "deploy/containers") == []
    assert ran(BIN / "yamllint", "-s", "-d", rules, ROOT / "deploy/kubernetes") == []


def test_kustomize_lists_every_manifest() -> None:
    folder = ROOT / "deploy/kubernetes"
    listed = yaml.safe_load((folder / "kustomization.yaml").read_text())["resources"]
    assert sorted([*listed, "kustomization.yaml"]) == sorted(p.name for p in folder.glob("*.yaml"))
