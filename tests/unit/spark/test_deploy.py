"""`deploy/spark`: scripts that run, with options and settings that Spark knows."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]  # its types are another package

from leadline_cli.java_runtime import package_directory
from leadline_spark.jobs import archive

DEPLOY = Path(__file__).resolve().parents[3] / "deploy" / "spark"
SCRIPTS = sorted(path.name for path in DEPLOY.glob("*.sh"))
VARIABLES = {
    "BOOTSTRAP": "http://broker:8080",
    "TOPICS": "orders,payments",
    "ARCHIVE": "/archive",
    "IMAGE": "leadline-spark",
    "HADOOP_CONF_DIR": "/etc/hadoop",
    "ENVIRONMENT": "environment.tar.gz",
}
RECORDER = '#!/bin/sh\nprintf "%s\\n" "$@" > "$RECORDED"\n'
VOLUME = re.compile(r"spark\.kubernetes\.(driver|executor)\.volumes\.\w+\.\w+\.(?=\w)")
FREE = ("spark.executorEnv.", "spark.yarn.appMasterEnv.")
"""Prefixes that names of the user's own follow."""


@cache
def _known_to_spark() -> bytes:
    """Return the constants of those of Spark's classes that read options and settings."""
    reading = re.compile(r".*(Config|Conf|OptionParser|package|Submit|Constants)[^/]*\.class")
    jars = re.compile(r"spark-(core|launcher|kubernetes|yarn|config)_.*\.jar")
    found = []
    for jar in (package_directory("pyspark") / "jars").iterdir():
        if jars.fullmatch(jar.name):
            with zipfile.ZipFile(jar) as classes:
                names = (name for name in classes.namelist() if reading.fullmatch(name))
                found += [classes.read(name) for name in names]
    return b"\n".join(found)


def _submitted(script: str, folder: Path) -> list[str]:
    """Run a script with a `spark-submit` that notes its arguments."""
    for name, content in (("spark-submit", RECORDER), ("leadline", "#!/bin/sh\n")):
        (folder / name).write_text(content)
        (folder / name).chmod(0o755)
    path = [str(folder), str(Path(sys.executable).parent), os.environ["PATH"]]
    recorded = {"PATH": os.pathsep.join(path), "RECORDED": str(folder / "recorded")}
    command = ["bash", str(DEPLOY / script), "k8s://https://host:6443"]
    subprocess.run(command, env={**os.environ, **VARIABLES, **recorded}, check=True)
    return (folder / "recorded").read_text().splitlines()


def _is_setting(name: str) -> bool:
    """Tell whether Spark knows a setting; some of its names are put together from two constants."""
    key = VOLUME.sub("", name).removesuffix("claimName").removesuffix(".")
    cuts = [at for at, sign in enumerate(key) if sign == "."]
    parts = [(key[:at], key[at:]) for at in cuts if key.count(".", 0, at) > 1]
    known = _known_to_spark()
    return key.encode() in known or any(
        head.encode() in known and tail.encode() in known for head, tail in parts
    )


def _settings(words: list[str]) -> Iterator[str]:
    for flag, word in zip(words, words[1:], strict=False):  # noqa: RUF007 - fewer words to read
        if flag == "--conf":
            yield word.partition("=")[0]


@pytest.mark.parametrize("script", SCRIPTS)
def test_scripts_submit_the_job_by_options_that_spark_knows(script: str, tmp_path: Path) -> None:
    words = _submitted(script, tmp_path)
    at = next(number for number, word in enumerate(words) if word.endswith("archive.py"))
    options, arguments = words[:at], words[at + 1 :]
    flags = [word for word in options if word.startswith("--")]
    assert len(flags) > 5
    for flag in flags:
        assert flag.encode() in _known_to_spark(), flag
    for name in _settings(options):
        assert name.startswith(FREE) or _is_setting(name), name
    asked = archive.parser().parse_args(arguments)
    assert (asked.topics, asked.to) == ("orders,payments", "/archive")


def test_a_word_that_spark_does_not_know_is_noticed() -> None:
    assert b"--conff" not in _known_to_spark()
    assert _is_setting("spark.kubernetes.container.image")
    assert not _is_setting("spark.kubernetes.container.imag3")
    assert not _is_setting("spark.kubernetes.authenticate.driver.serviceAccountNam3")


@pytest.mark.parametrize("script", SCRIPTS)
def test_scripts_say_what_they_lack(script: str) -> None:
    bare = {"PATH": os.environ["PATH"]}
    command = ["bash", str(DEPLOY / script)]
    done = subprocess.run(command, env=bare, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert re.search("usage|HADOOP_CONF_DIR", done.stderr)


def test_kubernetes_objects_fit_the_script() -> None:
    script = (DEPLOY / "kubernetes.sh").read_text()
    objects = list(yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text()))
    names = {(one["kind"], one["metadata"]["name"]) for one in objects}
    assert ("ServiceAccount", "leadline-spark") in names
    assert "serviceAccountName=leadline-spark" in script
    assert ("PersistentVolumeClaim", "leadline-archive") in names
    assert script.count("claimName=leadline-archive") == 2
    binding = next(one for one in objects if one["kind"] == "RoleBinding")
    assert (binding["roleRef"]["kind"], binding["roleRef"]["name"]) in names
    assert {one["metadata"]["namespace"] for one in objects} == {"leadline"}
    cron = next(one for one in objects if one["kind"] == "CronJob")
    container = cron["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"][0]
    assert container["command"][:3] == ["python3", "-m", "leadline_spark.jobs.verify"]
