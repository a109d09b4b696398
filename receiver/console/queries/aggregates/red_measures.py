"""Counts, errors and durations of groups in SQL: of the spans, or of the rows of a rollup.

Both give the same columns. Percentiles of a rollup are the middle of a bucket, at most 2.2 % (half a bucket)
from the percentile of the spans.
"""

from __future__ import annotations

from typing import Final

from receiver.console.queries.rollup.tables import BUCKETS_PER_OCTAVE
from receiver.engine.sql_text import Sql, compose

PERCENTILES: Final = Sql("""
    quantiles[1] / 1e6 AS p50_ms,
    quantiles[2] / 1e6 AS p95_ms,
    quantiles[3] / 1e6 AS p99_ms""")
ALL_PERCENTILES: Final = compose("{percentiles}, quantiles[4] / 1e6 AS p75_ms", percentiles=PERCENTILES)
COUNTS_OF_SPANS: Final = Sql("count() AS spans, countIf(StatusCode = 'Error') AS errors")
COUNTS_OF_ROWS: Final = Sql("sum(Spans) AS spans, sum(Errors) AS errors")
OF_SPANS: Final = compose(
    """
    {counts},
    max(Duration) AS max_ns,
    quantilesExact(0.5, 0.95, 0.99, 0.75)(Duration) AS quantiles""",
    counts=COUNTS_OF_SPANS,
)
# `quantilesExact` returns the span after the fraction, the weighted function the span at the fraction: of two
# spans, the second and the first. The levels are so little higher that both return the same span.
OF_ROWS: Final = compose(
    """
    {counts},
    max(DurationMax) AS max_ns,
    arrayMap(
        bucket -> if(bucket = 0, 0, least(exp2((bucket - 0.5) / {per_octave}), toFloat64(max_ns))),
        quantilesExactWeightedArray(0.500000001, 0.950000001, 0.990000001, 0.750000001)(
            Buckets, BucketSpans)
    ) AS quantiles""",
    counts=COUNTS_OF_ROWS,
    per_octave=BUCKETS_PER_OCTAVE,
)

ESTIMATES_OF_SPANS: Final = Sql("""
    if(countIf(isNull(SampleWeight)) = 0, sum(SampleWeight), NULL) AS estimated_spans,
    if(countIf(isNull(SampleWeight)) = 0,
        sum(if(StatusCode = 'Error', SampleWeight, 0)), NULL) AS estimated_errors,
    if(countIf(isNull(SampleWeight)) = 0,
        1.96 * sqrt(greatest(0, sum(SampleWeight * (SampleWeight - 1)))), NULL) AS estimated_spans_margin""")
"""Estimates of what was sent before sampling, with half the 95 % interval. NULL if a weight is not known."""
ESTIMATES_OF_ROWS: Final = Sql("""
    if(sum(WeightedSpans) = spans, sum(Weight), NULL) AS estimated_spans,
    if(sum(WeightedSpans) = spans, sum(ErrorWeight), NULL) AS estimated_errors,
    if(sum(WeightedSpans) = spans,
        1.96 * sqrt(greatest(0, sum(WeightVariance))), NULL) AS estimated_spans_margin""")
