"""Statements of SQL that the guard has to accept."""

from __future__ import annotations

from typing import Final

LIMITED: Final = (
    "SELECT groupArray(toString(number)) FROM numbers(1000000000)",
    "SELECT repeat('a', 1000000), range(1000000000)",
    "SELECT count() FROM numbers(1000000000000)",
    "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r) SELECT max(n) FROM r",
    "SELECT number FROM numbers(2) ORDER BY number WITH FILL FROM 0 TO 1000000000000",
    "SELECT arrayMap(x -> repeat('a', 1000000), range(100000))",
    "SELECT 1 AS a0" + "".join(f", a{n} + a{n} AS a{n + 1}" for n in range(40)),
    (
        "SELECT * FROM numbers(100000) AS a CROSS JOIN numbers(100000) AS b CROSS JOIN numbers(100000) AS c "
        "ORDER BY sipHash64(a.number, b.number, c.number)"
    ),
)
"""Statements that the guard accepts, and that exceed a limit of the engine."""

USEFUL: Final = (
    "SELECT 1",
    "select count() from otel_traces;",
    "SELECT count(*) FROM {database}.otel_traces",
    "FROM otel_traces SELECT count()",
    "SELECT ServiceName, count() AS spans FROM otel_traces GROUP BY ALL ORDER BY spans DESC LIMIT 10",
    (
        "SELECT ServiceName, countIf(StatusCode = 'Error') / count() AS errors FROM otel_traces GROUP BY 1 "
        "HAVING errors >= 0"
    ),
    "SELECT quantile(0.99)(Duration), quantiles(0.5, 0.9)(Duration) FROM otel_traces",
    (
        "SELECT ServiceName, quantileTDigestIf(0.95)(Duration, SpanKind = 'Server') AS p95 FROM "
        "otel_traces GROUP BY ServiceName"
    ),
    "SELECT SpanAttributes['http.route'] AS route, count() FROM otel_traces GROUP BY route",
    "SELECT arrayJoin(mapKeys(SpanAttributes)) AS key, count() FROM otel_traces GROUP BY key",
    (
        "SELECT k, uniq(v) FROM otel_traces ARRAY JOIN mapKeys(SpanAttributes) AS k, "
        "mapValues(SpanAttributes) AS v GROUP BY k"
    ),
    "SELECT arrayJoin(Events.Name) AS event, count() FROM otel_traces GROUP BY event",
    "SELECT Events.Name, `Events.Timestamp` FROM otel_traces LIMIT 1",
    (
        "SELECT toStartOfInterval(Timestamp, INTERVAL 5 MINUTE) AS t, count() FROM otel_traces GROUP BY t "
        "ORDER BY t"
    ),
    (
        "SELECT toStartOfHour(Timestamp) AS t, count() FROM otel_traces GROUP BY t ORDER BY t WITH FILL "
        "STEP toIntervalHour(1) LIMIT 5"
    ),
    (
        "SELECT Timestamp FROM otel_traces WHERE Timestamp > now() - INTERVAL 1 DAY AND Timestamp >= "
        "'2026-01-01 00:00:00'"
    ),
    "SELECT * FROM otel_traces LIMIT 1",
    "SELECT * EXCEPT (SpanAttributes, ResourceAttributes) FROM otel_traces LIMIT 1",
    "SELECT COLUMNS('^Span') FROM otel_traces LIMIT 1",
    "SELECT * REPLACE (Duration / 1e6 AS Duration) FROM otel_traces LIMIT 1",
    "SELECT COLUMNS('Count$') APPLY(sum) FROM otel_traces",
    "SELECT COLUMNS('Count$') APPLY(x -> toString(x)) FROM otel_traces LIMIT 1",
    "WITH slow AS (SELECT TraceId FROM otel_traces WHERE Duration > 1e9) SELECT count() FROM slow",
    (
        "WITH (SELECT max(Duration) FROM otel_traces) AS longest SELECT count() FROM otel_traces WHERE "
        "Duration = longest"
    ),
    (
        "SELECT c.SpanName, p.SpanName FROM otel_traces AS c JOIN otel_traces AS p ON c.ParentSpanId = "
        "p.SpanId AND c.TraceId = p.TraceId"
    ),
    "SELECT a.TraceId FROM otel_traces AS a LEFT ANTI JOIN otel_traces AS b ON a.ParentSpanId = b.SpanId",
    (
        "SELECT count() FROM otel_traces WHERE TraceId IN (SELECT TraceId FROM otel_traces WHERE "
        "StatusCode = 'Error')"
    ),
    "SELECT TraceId, dateDiff('second', min(Start), max(End)) FROM otel_traces_trace_id_ts GROUP BY TraceId",
    (
        "SELECT SpanName, row_number() OVER (PARTITION BY ServiceName ORDER BY Duration DESC) AS n FROM "
        "otel_traces QUALIFY n = 1"
    ),
    (
        "SELECT lagInFrame(Duration) OVER (ORDER BY Timestamp ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) "
        "FROM otel_traces"
    ),
    "SELECT avg(Duration) OVER w FROM otel_traces WINDOW w AS (PARTITION BY ServiceName)",
    (
        "SELECT CASE WHEN Duration > 1e9 THEN 'slow' ELSE 'fast' END AS speed, count() FROM otel_traces "
        "GROUP BY speed"
    ),
    "SELECT multiIf(Duration < 10, 'a', Duration < 20, 'b', 'c') AS x, count() FROM otel_traces GROUP BY x",
    (
        "SELECT match(SpanName, '^GET'), replaceRegexpAll(SpanName, '[0-9]+', '?'), SpanName ILIKE '%get%' "
        "FROM otel_traces"
    ),
    "SELECT JSONExtractString(SpanAttributes['body'], 'a') FROM otel_traces",
    (
        "SELECT toUInt32OrZero(SpanAttributes['http.response.status_code']) AS code, count() FROM "
        "otel_traces GROUP BY code"
    ),
    (
        "SELECT arrayMap((n, a) -> concat(n, ':', toString(length(a))), Events.Name, Events.Attributes) "
        "FROM otel_traces"
    ),
    (
        "SELECT arrayFilter(x -> x LIKE 'exc%', Events.Name), arrayExists(x -> x = 'exception', "
        "Events.Name) FROM otel_traces"
    ),
    (
        "SELECT ServiceName, groupArray(3)(SpanName), topK(5)(SpanName), argMax(SpanName, Duration), "
        "uniqExact(TraceId) FROM otel_traces GROUP BY ServiceName"
    ),
    "SELECT ServiceName, SpanName, count() FROM otel_traces GROUP BY ROLLUP(ServiceName, SpanName)",
    "SELECT ServiceName, count() FROM otel_traces GROUP BY ServiceName WITH TOTALS",
    "SELECT ServiceName, grouping(ServiceName) FROM otel_traces GROUP BY GROUPING SETS ((ServiceName), ())",
    "SELECT arrayMap(lower, Events.Name) FROM otel_traces",
    "SELECT toDate(Timestamp) AS day, bar(count(), 0, 10, 5) FROM otel_traces GROUP BY day ORDER BY day",
    "SELECT count(DISTINCT TraceId), sum(Duration) FILTER (WHERE Duration > 0) FROM otel_traces",
    "SELECT '{a:String} %s %(x)s' AS x, 7 % 4 AS y",
    (
        "SELECT DISTINCT ON (ServiceName) ServiceName, SpanName FROM otel_traces ORDER BY ServiceName, "
        "Duration DESC"
    ),
    "SELECT SpanName FROM otel_traces ORDER BY Duration DESC LIMIT 2 BY ServiceName",
    "SELECT 'a' UNION ALL SELECT 'b' UNION DISTINCT SELECT 'b'",
    "SELECT 1 EXCEPT SELECT 2",
    "WITH RECURSIVE n AS (SELECT 1 AS x UNION ALL SELECT x + 1 FROM n WHERE x < 5) SELECT sum(x) FROM n",
    "SELECT number, toString(number) FROM numbers(3)",
    "SELECT generate_series FROM generate_series(1, 3)",
    "SELECT count() FROM otel_red FINAL WHERE Errors > 0",
    "SELECT count() FROM otel_red UNION ALL SELECT count() FROM otel_red_deployment",
    "SELECT Span_http_route, count() FROM otel_traces WHERE has(Event_exception_type, 'E') GROUP BY ALL",
    "SELECT 'file(''/etc/passwd'')' AS text, 'SETTINGS readonly = 0; -- /* INTO OUTFILE' AS more",
    "SELECT CAST('5' AS UInt8), '5'::Float64, [1, 2]::Array(UInt8), toDateTime64('2026-01-01 00:00:00', 3)",
    "SELECT Duration / 1000000 AS `duration in ms`, -Duration, NOT empty(TraceId) FROM otel_traces LIMIT 1",
    "SELECT formatDateTime(Timestamp, '%Y-%m-%d'), toTimeZone(Timestamp, 'UTC') FROM otel_traces",
    (
        "SELECT Timestamp BETWEEN now() - 5 AND now(), ParentSpanId IS NULL, SampleWeight IS NOT NULL FROM "
        "otel_traces"
    ),
    "SELECT (SELECT count() FROM otel_traces) AS total, EXISTS(SELECT 1 FROM otel_traces)",
    (
        "SELECT TraceId, groupUniqArray(ServiceName) AS services FROM otel_traces GROUP BY TraceId HAVING "
        "has(services, 'web')"
    ),
    (
        "SELECT extract(SpanName, '[a-z]+'), splitByChar('/', SpanName)[1], "
        "domain(SpanAttributes['url.full']) FROM otel_traces"
    ),
    (
        "SELECT extractAll(StatusMessage, '[0-9]+|[a-f0-9]{8}(-[a-f0-9]{4}){3}'), "
        "countMatches(SpanName, '\\\\w+=') FROM otel_traces"
    ),
    "SELECT positionCaseInsensitive(SpanName, 'get'), notILike(SpanName, '%x%') FROM otel_traces",
    "SELECT multiSearchAnyCaseInsensitive(SpanName, ['get']), SpanName NOT ILIKE '%x%' FROM otel_traces",
    "SELECT splitByRegexp('[, ]+', 'a, b'), extractAllGroups('k=v', '(\\\\w+)=(\\\\w*)')",
    "SELECT 1 AS version, 'x' AS path, 3 AS errors, 4 AS count, 5 AS name, 6 AS type, 7 AS status",
)
"""Statements that the guard accepts and the engine answers."""
