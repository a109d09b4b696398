"""`trace-drain sampling explain`: why the spans of a trace are kept or dropped."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Literal

import click

from receiver import transcode
from receiver.cli.shell.group import CommandGroup, examples
from receiver.cli.shell.options import config_option, data_option, loaded_with
from receiver.errors import OperatorError
from receiver.printable import harmless_text
from receiver.settings import Sampling, SamplingRule, Settings
from receiver.transcode import ExplainedTrace

RULE_ATTRIBUTES = ("drain", "project", "environment", "service")
"""Attributes that a rule can match."""
BY_OPTION = ("mode", "rate", "percent", "seed")
"""Options that describe a policy, which then replaces that of the configuration."""
RANDOMNESS_MAX = 1 << 56
"""Number of randomness values: 56 bits, set by the OpenTelemetry specification."""


@click.group(cls=CommandGroup)
def sampling() -> None:
    """Explain a sampling decision."""


@sampling.command(
    epilog=examples(
        "trace-drain sampling explain 4bf92f3577b34da6a3ce929d0e0e4736 --project prj_1 --service web",
        "trace-drain sampling explain 4bf92f3577b34da6a3ce929d0e0e4736 --mode hash_seed --percent 25",
    )
)
@click.argument("trace_id", metavar="TRACE_ID")
@config_option
@data_option
@click.option("--drain", metavar="NAME", help="Drain of the span. [the only drain, if there is just one]")
@click.option("--project", metavar="ID", help="Project of the span.")
@click.option("--environment", metavar="NAME", help="Environment of the span.")
@click.option("--service", metavar="NAME", help="Service of the span.")
@click.option("--tracestate", default="", metavar="T", help="Trace state of the span, as received.")
@click.option(
    "--mode",
    type=click.Choice(["equalizing", "proportional", "hash_seed"]),
    help="Explain this mode instead of the configuration. [equalizing]",
)
@click.option("--rate", type=click.FloatRange(0, 1), metavar="R", help="Explain this rate, 0 to 1. [1]")
@click.option("--percent", type=click.FloatRange(0, 100), metavar="P", help="The rate in percent.")
@click.option("--seed", type=click.IntRange(0, 0xFFFF_FFFF), metavar="S", help="For hash_seed. [0]")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", help="Output format.")
def explain(
    trace_id: str,
    config: str | None,
    data: str | None,
    *,
    tracestate: str,
    form: Literal["text", "json"],
    **options: Any,  # noqa: ANN401 - checked by click
) -> None:
    """Explain whether spans of TRACE_ID are kept: the rule, the randomness, the threshold and the weight.

    Uses [sampling] of the configuration, with the drain, project, environment and service given here. With
    --mode, --rate, --percent or --seed the configuration is not read.
    """
    if not tracestate.isascii():
        raise OperatorError("--tracestate is not ASCII; expected the trace state as received")
    is_by_option = any(options[name] is not None for name in BY_OPTION)
    settings = _by_option(options) if is_by_option else loaded_with(config, data).settings
    span = {name: options[name] for name in RULE_ATTRIBUTES}
    if not is_by_option:
        span["drain"] = _drain(settings, options["drain"])
    try:
        explained = transcode.explain_sampling(
            transcode.policy(settings),
            trace_id,
            trace_state=tracestate,
            **{name: value or "" for name, value in span.items()},
        )
    except transcode.CoreError as wrong:
        raise OperatorError(str(wrong)) from wrong
    if form == "json":
        click.echo(json.dumps(_document(trace_id, settings.sampling, explained)))
        return
    for line in _text(trace_id, settings.sampling, explained, span):
        click.echo(harmless_text(line))


def _by_option(options: Mapping[str, Any]) -> Settings:
    """Return settings with the sampling policy that the options describe."""
    if options["rate"] is not None and options["percent"] is not None:
        raise OperatorError("--rate and --percent are both given; expected one")
    rate = options["percent"] / 100 if options["percent"] is not None else options["rate"]
    mode: Any = options["mode"] or "equalizing"
    seed = options["seed"] or 0
    return Settings(sampling=Sampling(mode=mode, rate=1.0 if rate is None else rate, seed=seed))


def _drain(settings: Settings, name: str | None) -> str | None:
    """Return the drain with this name; without a name, the only drain."""
    names = [drain.name for drain in settings.drain]
    if name is not None and name not in names:
        raise OperatorError(f"--drain is '{name}'; expected {' or '.join(names)}")
    return name or (names[0] if len(names) == 1 else None)


def _document(trace_id: str, policy: Sampling, explained: ExplainedTrace) -> dict[str, object]:
    rule = None if policy.mode == "off" else explained.rule
    return {
        "trace_id": trace_id,
        "keep": explained.keep,
        "weight": explained.weight,
        "threshold": explained.threshold,
        "reason": explained.reason,
        "ignored": explained.ignored,
        "mode": policy.mode,
        "seed": policy.seed,
        "rate": _rate(policy, explained),
        "rule": None if rule is None else {"number": rule + 1, "conditions": _conditions(policy.rule[rule])},
        "randomness": explained.randomness,
        "randomness_from": explained.randomness_from,
        "arriving_threshold": explained.arriving_threshold,
    }


def _rate(policy: Sampling, explained: ExplainedTrace) -> float:
    """Return the sampling rate of the rule that matches, or of the policy."""
    if policy.mode == "off":
        return 1.0
    return policy.rate if explained.rule is None else policy.rule[explained.rule].rate


def _conditions(rule: SamplingRule) -> dict[str, str]:
    return {name: value for name in RULE_ATTRIBUTES if (value := getattr(rule, name)) is not None}


def _text(
    trace_id: str, policy: Sampling, explained: ExplainedTrace, span: Mapping[str, str | None]
) -> Iterator[str]:
    """Yield the decision, and below it each step that leads to it."""
    yield f"spans of trace {trace_id} are {'kept' if explained.keep else 'dropped'}"
    yield f"  mode        {policy.mode}{f', seed {policy.seed}' if policy.mode == 'hash_seed' else ''}"
    if policy.mode != "off":
        yield f"  rule        {_rule_text(policy, explained)}"
        if unknown := _missing_options(policy, explained, span):
            options = ", ".join(f"--{name}" for name in unknown)
            yield f"              rules also compare options that were not given: {options}"
        yield f"  randomness  {explained.randomness}, the {explained.randomness_from}"
    if explained.arriving_threshold:
        threshold = _threshold_text(explained.arriving_threshold)
        yield f"  arrived     with threshold {threshold} in its trace state"
    yield f"  decision    {_decision_text(policy, explained)}"
    yield f"  weight      {_weight_text(explained)}"
    yield f"  reason      {explained.reason}   (column SampleReason)"
    if explained.ignored:
        what = " and ".join(f"'{name}'" for name in explained.ignored)
        yield f"  ignored     {what} of the trace state: malformed; counted as absent"
    if policy.mode == "hash_seed":
        yield "  note        a span's sampling.priority overrides this: 0 drops it, a higher value keeps it"


def _rule_text(policy: Sampling, explained: ExplainedTrace) -> str:
    rate = f"rate {_rate(policy, explained):g}"
    if explained.rule is not None:
        conditions = ", ".join(
            f"{name} = '{value}'" for name, value in _conditions(policy.rule[explained.rule]).items()
        )
        return f"{explained.rule + 1} of {len(policy.rule)} matches ({conditions or 'every span'}): {rate}"
    if policy.rule:
        return f"none of {len(policy.rule)} matches: {rate} (sampling.rate)"
    return f"there are no rules: {rate}"


def _missing_options(
    policy: Sampling, explained: ExplainedTrace, span: Mapping[str, str | None]
) -> list[str]:
    """Return the attributes that earlier rules compare and that no option sets."""
    earlier = policy.rule[: explained.rule]
    return [
        name
        for name in RULE_ATTRIBUTES
        if span[name] is None and any(getattr(rule, name) is not None for rule in earlier)
    ]


def _threshold_text(threshold: str) -> str:
    """Return a threshold with the share of traces that reach it."""
    share = 1 - int(threshold.ljust(14, "0"), 16) / RANDOMNESS_MAX
    return f"{threshold.ljust(14, '0')} (keeps {share * 100:.6g} % of all traces)"


def _decision_text(policy: Sampling, explained: ExplainedTrace) -> str:
    verdict = "kept" if explained.keep else "dropped"
    if policy.mode == "off":
        return "kept: sampling.mode is off"
    if explained.threshold is None:
        inconsistent = "its randomness is below the threshold it arrived with"
        return f"{verdict}: {inconsistent if explained.keep else 'this rate keeps no trace'}"
    compared = "reaches" if explained.keep else "is below"
    return f"{verdict}: the randomness {compared} the threshold {_threshold_text(explained.threshold)}"


def _weight_text(explained: ExplainedTrace) -> str:
    if not explained.keep:
        return "none: dropped spans are counted as sampled out"
    if explained.weight is None:
        return "unknown (NULL): the share that upstream dropped is not known"
    return f"{explained.weight:g}: one stored span stands for {explained.weight:g}"
