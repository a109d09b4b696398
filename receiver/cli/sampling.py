"""`trace-drain sampling explain`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Literal

import click

from receiver import transcode
from receiver.cli.group import Group, examples
from receiver.cli.options import config_option, data_option, loaded_with
from receiver.errors import OperatorError
from receiver.logs import harmless_text
from receiver.settings import Sampling, SamplingRule, Settings
from receiver.transcode import ExplainedTrace

LOOKED_AT = ("drain", "project", "environment", "service")
"""What a rule can look at."""
BY_OPTION = ("mode", "rate", "percent", "seed")
"""Options that replace the configuration."""
RANDOMNESS_MAX = 1 << 56


@click.group(cls=Group)
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
@click.option("--drain", metavar="NAME", help="Drain of the span. [the only one]")
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
@click.option("--percent", type=click.FloatRange(0, 100), metavar="P", help="The same in percent.")
@click.option("--seed", type=click.IntRange(0, 0xFFFF_FFFF), metavar="S", help="For hash_seed. [0]")
@click.option(
    "--format", "form", type=click.Choice(["text", "json"]), default="text", help="Form of the answer."
)
def explain(
    trace_id: str,
    config: str | None,
    data: str | None,
    *,
    tracestate: str,
    form: Literal["text", "json"],
    **given: Any,  # noqa: ANN401 - as click has checked them
) -> None:
    """Explain whether spans of TRACE_ID are kept: the rule, the randomness, the threshold and the weight.

    Uses [sampling] of the configuration, with the drain, project, environment and service given here. With
    --mode, --rate, --percent or --seed the configuration is not read.
    """
    if not tracestate.isascii():
        raise OperatorError("--tracestate holds more than ASCII; expected it as the span carried it")
    is_by_option = any(given[name] is not None for name in BY_OPTION)
    settings = _by_option(given) if is_by_option else loaded_with(config, data).settings
    span = {name: given[name] for name in LOOKED_AT}
    if not is_by_option:
        span["drain"] = _drain(settings, given["drain"])
    try:
        found = transcode.explain_sampling(
            transcode.policy(settings),
            trace_id,
            trace_state=tracestate,
            **{name: value or "" for name, value in span.items()},
        )
    except transcode.CoreError as wrong:
        raise OperatorError(str(wrong)) from wrong
    if form == "json":
        click.echo(json.dumps(_document(trace_id, settings.sampling, found)))
        return
    for line in _text(trace_id, settings.sampling, found, span):
        click.echo(harmless_text(line))


def _by_option(given: Mapping[str, Any]) -> Settings:
    """Return settings that sample as the options say."""
    if given["rate"] is not None and given["percent"] is not None:
        raise OperatorError("--rate and --percent are both given; expected one")
    rate = given["percent"] / 100 if given["percent"] is not None else given["rate"]
    mode: Any = given["mode"] or "equalizing"
    seed = given["seed"] or 0
    return Settings(sampling=Sampling(mode=mode, rate=1.0 if rate is None else rate, seed=seed))


def _drain(settings: Settings, name: str | None) -> str | None:
    """Return the drain of the span: the one that is named, or the only one there is."""
    names = [drain.name for drain in settings.drain]
    if name is not None and name not in names:
        raise OperatorError(f"--drain is '{name}'; expected {' or '.join(names)}")
    return name or (names[0] if len(names) == 1 else None)


def _document(trace_id: str, policy: Sampling, found: ExplainedTrace) -> dict[str, object]:
    rule = None if policy.mode == "off" else found.rule
    return {
        "trace_id": trace_id,
        "keep": found.keep,
        "weight": found.weight,
        "threshold": found.threshold,
        "reason": found.reason,
        "ignored": found.ignored,
        "mode": policy.mode,
        "seed": policy.seed,
        "rate": _rate(policy, found),
        "rule": None if rule is None else {"number": rule + 1, "conditions": _conditions(policy.rule[rule])},
        "randomness": found.randomness,
        "randomness_from": found.randomness_from,
        "arriving_threshold": found.arriving_threshold,
    }


def _rate(policy: Sampling, found: ExplainedTrace) -> float:
    """Return the rate that holds for the span."""
    if policy.mode == "off":
        return 1.0
    return policy.rate if found.rule is None else policy.rule[found.rule].rate


def _conditions(rule: SamplingRule) -> dict[str, str]:
    return {name: value for name in LOOKED_AT if (value := getattr(rule, name)) is not None}


def _text(
    trace_id: str, policy: Sampling, found: ExplainedTrace, span: Mapping[str, str | None]
) -> Iterator[str]:
    """Yield the decision, and below it each step that leads to it."""
    yield f"spans of trace {trace_id} are {'kept' if found.keep else 'dropped'}"
    yield f"  mode        {policy.mode}{f', seed {policy.seed}' if policy.mode == 'hash_seed' else ''}"
    if policy.mode != "off":
        yield f"  rule        {_rule_text(policy, found)}"
        if unknown := _not_given(policy, found, span):
            options = ", ".join(f"--{name}" for name in unknown)
            yield f"              rules also look at what was not given here: {options}"
        yield f"  randomness  {found.randomness}, the {found.randomness_from}"
    if found.arriving_threshold:
        yield f"  arrived     with threshold {_threshold_text(found.arriving_threshold)} in its trace state"
    yield f"  decision    {_decision_text(policy, found)}"
    yield f"  weight      {_weight_text(found)}"
    yield f"  reason      {found.reason}   (column SampleReason)"
    if found.ignored:
        what = " and ".join(f"'{name}'" for name in found.ignored)
        yield f"  ignored     {what} of the trace state: malformed; counted as absent"
    if policy.mode == "hash_seed":
        yield "  note        a span attribute sampling.priority overrides this: 0 drops, more keeps"


def _rule_text(policy: Sampling, found: ExplainedTrace) -> str:
    rate = f"rate {_rate(policy, found):g}"
    if found.rule is not None:
        conditions = ", ".join(
            f"{name} = '{value}'" for name, value in _conditions(policy.rule[found.rule]).items()
        )
        return f"{found.rule + 1} of {len(policy.rule)} matches ({conditions or 'every span'}): {rate}"
    if policy.rule:
        return f"none of {len(policy.rule)} matches: {rate} (sampling.rate)"
    return f"there are no rules: {rate}"


def _not_given(policy: Sampling, found: ExplainedTrace, span: Mapping[str, str | None]) -> list[str]:
    """Name what rules before the one that matches look at, and what was not given."""
    earlier = policy.rule[: found.rule]
    return [
        name
        for name in LOOKED_AT
        if span[name] is None and any(getattr(rule, name) is not None for rule in earlier)
    ]


def _threshold_text(threshold: str) -> str:
    """Spell a threshold and the share of traces whose randomness reaches it."""
    share = 1 - int(threshold.ljust(14, "0"), 16) / RANDOMNESS_MAX
    return f"{threshold.ljust(14, '0')} (keeps {share * 100:.6g} % of all traces)"


def _decision_text(policy: Sampling, found: ExplainedTrace) -> str:
    verdict = "kept" if found.keep else "dropped"
    if policy.mode == "off":
        return "kept: sampling.mode is off"
    if found.threshold is None:
        inconsistent = "its randomness is below the threshold it arrived with"
        return f"{verdict}: {inconsistent if found.keep else 'this rate keeps no trace'}"
    compared = "reaches" if found.keep else "is below"
    return f"{verdict}: the randomness {compared} the threshold {_threshold_text(found.threshold)}"


def _weight_text(found: ExplainedTrace) -> str:
    if not found.keep:
        return "none: dropped spans are counted as sampled out"
    if found.weight is None:
        return "unknown (NULL): what upstream dropped is not known"
    return f"{found.weight:g}: one stored span stands for {found.weight:g}"
