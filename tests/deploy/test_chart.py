"""The Helm chart and the Kustomize base: their renders are current, valid, and accepted by the receiver."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from textwrap import dedent, indent
from typing import Final

import pytest

from receiver.config.keys import spellings
from receiver.config.load import Sources
from receiver.settings import Settings, Tls
from receiver.supervisor.certificate import with_certificate
from tests.e2e.receiver_process import ReceiverProcess
from tests.faults import bodies
from tests.support.cases import each_case
from tests.support.metric_names import exported_names, named_metrics

ROOT: Final = Path(__file__).parents[2]
CHART: Final = ROOT / "deploy/helm/trace-drain-receiver"
RENDERS: Final = {
    "server": ROOT / "deploy/kustomize/base/trace-drain.yaml",
    "embedded": ROOT / "tests/deploy/renders/embedded.yaml",
    "everything": ROOT / "tests/deploy/renders/everything.yaml",
}
"""Name of a values file → its committed render, which `make renders` writes."""
EACH_RENDER: Final = pytest.mark.parametrize("name", RENDERS)
HELM: Final = shutil.which("helm")
NEEDS_HELM: Final = pytest.mark.skipif(HELM is None, reason="helm is not installed; .ci/run installs it")
VALIDATE: Final = Path(sys.executable).with_name("kubernetes-validate")
NEEDS_SCHEMAS: Final = pytest.mark.skipif(
    not VALIDATE.exists(), reason="kubernetes-validate is not installed: requirements/dev.lock"
)
SECRETS: Final = "/etc/trace-drain/secrets"


def helm(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(HELM), *arguments], capture_output=True, text=True, check=False)


def rendered_now(name: str, *options: str) -> subprocess.CompletedProcess[str]:
    values = CHART / f"ci/{name}-values.yaml"
    fixed = ("--namespace", "trace-drain", "--kube-version", "1.30", "--values", str(values))
    return helm("template", "trace-drain", str(CHART), *fixed, *options)


def resource(name: str, kind: str) -> str:
    """Return the only resource of a kind in a render."""
    (found,) = (each for each in documents(name) if f"\nkind: {kind}\n" in each)
    return found


def documents(name: str) -> list[str]:
    return RENDERS[name].read_text().split("\n---\n")


@NEEDS_HELM
@EACH_RENDER
def test_committed_render_is_what_the_chart_renders(name: str) -> None:
    assert rendered_now(name).stdout == RENDERS[name].read_text(), "run `make renders`"


@NEEDS_HELM
@EACH_RENDER
def test_helm_lint_finds_nothing(name: str) -> None:
    linted = helm("lint", "--strict", str(CHART), "--values", str(CHART / f"ci/{name}-values.yaml"))

    assert linted.returncode == 0, linted.stdout


@NEEDS_HELM
@each_case(
    ("name", "option", "reason"),
    [
        ("server", "replica=2", "'replica' not allowed"),
        ("server", "clickhouse.url=", "'/clickhouse/url'"),
        ("server", "clickhouse.url=https://ingest:secret@clickhouse:8443/otel", "'/clickhouse/url'"),
        ("server", "clickhouse.url=https://clickhouse/otel", "'/clickhouse/url'"),
        ("server", "emptyJournals={0}", "replica 0 is not removed"),
        ("server", "podSpec.hostNetwork=true", "'hostNetwork' not allowed"),
        ("server", 'config=token = "secret"', "config contains a secret"),
        ("server", 'config=session_key = "secret"', "config contains a secret"),
        ("server", 'config=encryption_key_previous = "secret"', "config contains a secret"),
        ("server", 'config=store = { url = "http://ingest:secret@clickhouse:8123" }', "contains a secret"),
        ("embedded", "replicas=2", "'/replicas': value must be 1"),
        ("embedded", "autoscaling.enabled=true", "'/autoscaling/enabled'"),
        ("embedded", "clickhouse.url=https://clickhouse:8443/otel", "'/clickhouse/url'"),
    ],
)
def test_wrong_value_is_refused(name: str, option: str, reason: str) -> None:
    refused = rendered_now(name, "--set", option)

    assert refused.returncode != 0
    assert reason in refused.stderr


@NEEDS_HELM
def test_values_of_the_documentation_are_accepted(tmp_path: Path) -> None:
    page = (ROOT / "docs/kubernetes.md").read_text()
    examples = re.findall(r"```yaml\n# values\.yaml\n(.*?)```", page, re.DOTALL)

    assert len(examples) > 1
    for values in examples:
        (tmp_path / "values.yaml").write_text(values)
        rendered = helm(
            "template", "x", str(CHART), "--kube-version", "1.30", "-f", f"{tmp_path}/values.yaml"
        )
        assert rendered.returncode == 0, rendered.stderr


@NEEDS_SCHEMAS
@pytest.mark.parametrize("version", ["1.30", "1.37"])
def test_kubernetes_accepts_every_resource(tmp_path: Path, version: str) -> None:
    for name in RENDERS:
        # The schemas of Kubernetes do not have the resources of the Prometheus operator.
        known = [each for each in documents(name) if "monitoring.coreos.com" not in each]
        (tmp_path / f"{name}.yaml").write_text("\n---\n".join(known))
    files = sorted(str(path) for path in tmp_path.iterdir())

    done = subprocess.run(
        [VALIDATE, "--strict", "-k", version, *files], capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stdout + done.stderr


@EACH_RENDER
def test_receiver_accepts_the_rendered_configuration(tmp_path: Path, name: str) -> None:
    workload = resource(name, "StatefulSet")
    tls = with_certificate(Settings(tls=Tls(self_signed=True)), tmp_path).tls
    config = dedent(resource(name, "ConfigMap").partition("trace-drain.toml: |\n")[2])
    environ = dict(re.findall(r'- name: (TRACE_DRAIN_\w+)\n +value: "?([^"\n]*)', workload))
    for secret, key in re.findall(rf"{SECRETS}/([\w.-]+)/([\w.-]+)", config + workload):
        (tmp_path / secret).mkdir(exist_ok=True)
        kept = {"tls.crt": Path(tls.cert_file), "tls.key": Path(tls.key_file)}.get(key)
        (tmp_path / secret / key).write_text(kept.read_text() if kept else f"random text of {key}")
        assert f"secretName: {secret}\n" in workload
    (tmp_path / "trace-drain.toml").write_text(config.replace(SECRETS, str(tmp_path)))
    environ = {variable: value.replace(SECRETS, str(tmp_path)) for variable, value in environ.items()}
    environ |= {
        "TRACE_DRAIN_CONFIG": str(tmp_path / "trace-drain.toml"),
        "TRACE_DRAIN_DATA_DIR": str(tmp_path / "data"),
    }

    settings = Sources(None, environ, {}).load().settings

    assert [drain.name for drain in settings.drain] == ["production"]
    assert (settings.store.url == "embedded") == (name == "embedded")
    assert bool(settings.api_token) == ("containerPort: 8318" in workload)
    (grace_s,) = re.findall(r"terminationGracePeriodSeconds: (\d+)", workload)
    (wait_s,) = re.findall(r"sleep: \{seconds: (\d+)\}", workload)
    # As docs/operations.md demands of what stops the receiver.
    assert int(grace_s) == int(wait_s) + 2 * settings.limits.stop_grace_s + 10


@EACH_RENDER
def test_pod_matches_the_image_and_the_admin_port(name: str) -> None:
    workload = resource(name, "StatefulSet")
    image = (ROOT / "deploy/Dockerfile").read_text()
    routes = re.findall(r'web\.get\("(/\w+)"', (ROOT / "receiver/supervisor/admin.py").read_text())

    assert set(re.findall(r"httpGet: \{path: (/\w+), port: admin\}", workload)) == {"/livez", "/readyz"}
    assert {"/livez", "/readyz"} <= set(routes)
    assert set(re.findall(r"runAs(?:User|Group): (\d+)|fsGroup: (\d+)", workload)) == {
        ("10001", ""),
        ("", "10001"),
    }
    assert "USER 10001:10001" in image
    assert "readOnlyRootFilesystem: true" in workload
    ports = dict(re.findall(r"- name: (otlp|admin)\n +containerPort: (\d+)", workload))
    assert f"EXPOSE {ports['otlp']} {ports['admin']}" in image


def test_every_key_of_a_secret_is_refused_in_the_config_map() -> None:
    template = (CHART / "templates/config.yaml").read_text()
    refused = re.compile(template.partition("regexMatch `")[2].partition("`")[0])
    secrets = [form for form in spellings().values() if form.setting_key.form == "secret"]

    for form in secrets:
        line = f'{form.path[-1]} = "x"'
        assert bool(refused.search(line)) == (form.spelling in {"value", "one"}), line


def test_rules_of_the_chart_are_the_alert_rules() -> None:
    alerts = ROOT / "deploy/prometheus/alerts.yml"
    rules = (each for each in documents("everything") if "kind: PrometheusRule" in each)

    assert alerts.resolve() == CHART / "files/alerts.yml"
    assert indent(alerts.read_text(), "  ", lambda _: True).rstrip() in next(rules)


def test_replicas_are_added_by_a_metric_that_is_exported() -> None:
    metrics = named_metrics(resource("everything", "HorizontalPodAutoscaler"))

    assert metrics
    assert metrics <= exported_names()


@pytest.mark.fault_tier
def test_job_stores_the_journal_of_a_removed_replica_once_that_has_stopped(tmp_path: Path) -> None:
    argument = resource("everything", "Job").partition("args:\n            - |\n")[2]
    script = dedent(argument.partition("      volumes:")[0]).replace("127.0.0.1:4318", "127.0.0.1:0")
    listen = {f"TRACE_DRAIN_{name}": "127.0.0.1:0" for name in ("ADMIN_LISTEN", "API_LISTEN")}
    path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    environment = {**os.environ, **listen, "PATH": path, "TRACE_DRAIN_DATA_DIR": str(tmp_path)}
    with ReceiverProcess(tmp_path, "--store", "http://ingest@127.0.0.1:9/otel") as removed:
        assert removed.post(bodies.trace_body(1, spans=3)).status == 200
        command = ["/bin/sh", "-euc", script]
        job = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert job.stderr
        assert any("is in use" in line for line in job.stderr)
    assert list((tmp_path / "journal").rglob("*.native.lz4"))

    output, errors = job.communicate()

    assert job.returncode == 0, errors
    assert output.endswith("the journal is empty\n")
    assert list((tmp_path / "journal").rglob("*.native.lz4")) == []
