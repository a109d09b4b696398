"""The parts of ClickHouse's language that a statement of an operator may use. All other parts are refused.

A function belongs here if it reads nothing but its arguments, changes nothing, does not wait, and needs time
and memory in proportion to its arguments. Left out on purpose, although they look harmless:

    arrayFold, hasAny, hasAll, editDistance,
    countEqual, hasSubsequence, halfMD5,
    timeSlots …                                  take time that the engine does not limit
    reinterpret, initializeAggregation …         read states of aggregate functions from any bytes
    arrayReduce, untuple                         take the name of a function or of a column from a text
    throwIf                                      puts values of rows into errors
"""

from __future__ import annotations

from typing import Final, NamedTuple

from receiver.console.queries.rollup.tables import ATTRIBUTE_TABLES, ROLLUPS, SLOTS
from receiver.engine.sql_text import Sql, compose
from receiver.engine.store import COMPANION, DEPLOYMENT_EVENTS, TABLE


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


TABLES: Final = frozenset(
    {
        *(TABLE, COMPANION, "trace_drain_migrations", DEPLOYMENT_EVENTS),
        *(rollup.table for rollup in ROLLUPS),
        *ATTRIBUTE_TABLES,
    }
)
"""Tables that a statement may read. Of the rollups, those by day and the slots are internal."""

# FINAL is not enough: a derivation that is incomplete, or lacks a row of the one before, leaves other rows.
_IS_CURRENT: Final = compose(
    "(Hour, Version) IN (SELECT Hour, Version FROM {slots} FINAL WHERE IsComplete)", slots=SLOTS
)
_CURRENT_ROWS: Final = ", ".join(
    (
        *(f"'{rollup.table}': '{_IS_CURRENT}'" for rollup in ROLLUPS),
        # Without the total row of an hour, which would be counted twice.
        *(f"'{table}': '{_IS_CURRENT} AND Source != \\'\\''" for table in ATTRIBUTE_TABLES),
    )
)
CURRENT_ROWS: Final = f"{{{_CURRENT_ROWS}}}"
"""Value of the setting `additional_table_filters`: of the rollups only rows of the current derivations.

A derivation writes new rows, and the engine removes the superseded ones at any later time.
"""


class Extras(NamedTuple):
    """Names that a statement may use in addition to the lists of this module."""

    functions: frozenset[str] = frozenset()
    """In lower case."""
    tables: frozenset[str] = frozenset()
    """Tables of the database `system`, as `system.tables`."""


NO_EXTRAS: Final = Extras()
FOR_CLIENTS: Final = Extras(
    _names(
        "version revision timezone servertimezone displayname currentuser user currentdatabase database _cast"
    ),
    _names("system.one system.settings system.functions system.databases system.tables system.columns"),
)
"""What ClickHouse's own clients ask for when they connect, and when they complete names.

`system.one` has one row without content, and the other tables are read with `ROWS_FOR_CLIENTS` only. The
functions tell nothing about the host but its name.
The engine puts `_cast` in the place of some parameters.
"""
_OWN_TABLES: Final = ", ".join(f"\\'{name}\\'" for name in sorted(TABLES))
ROWS_FOR_CLIENTS: Final = (
    "{'system.functions': 'origin = \\'System\\'', "
    "'system.databases': 'name = currentDatabase()', "
    f"'system.tables': 'database = currentDatabase() AND name IN ({_OWN_TABLES})', "
    f"'system.columns': 'database = currentDatabase() AND table IN ({_OWN_TABLES})', {_CURRENT_ROWS}}}"
)
"""The same for clients, and of the tables of the engine only rows about our own tables."""

PATHS_OF: Final = {"tables": Sql("data_paths, metadata_path"), "databases": Sql("data_path, metadata_path")}
"""Table of the database `system` → its columns with paths of the host, which clients do not see."""

TABLE_FUNCTIONS: Final = frozenset({"numbers", "generate_series", "generateseries"})
"""Table functions, in lower case. They read nothing."""

KEYWORDS: Final = _names(
    """
    ALL AND ANTI ANY ARRAY AS ASC ASOF BETWEEN BY COLUMNS CROSS CUBE CURRENT DESC DISTINCT ESCAPE
    EXCEPT FILL FINAL FIRST FOLLOWING FROM FULL GLOBAL GROUP GROUPING GROUPS HAVING IGNORE ILIKE IN
    INNER INTERPOLATE INTERSECT IS JOIN LAST LEFT LIKE LIMIT NOT NULL NULLS OFFSET ON OR ORDER OUTER
    OVER PARTITION PASTE PRECEDING PREWHERE QUALIFY RANGE RECURSIVE REPLACE RESPECT RIGHT ROLLUP ROW
    ROWS SAMPLE SELECT SEMI SETS STALENESS STEP TIES TO TOTALS UNBOUNDED UNION USING WHERE WINDOW
    WITH APPLY TRUE FALSE
    """
)
"""Keywords, as the engine writes them."""

BEFORE_PARENTHESIS: Final = _names(
    """
    ALL AND ANY AS BY COLUMNS EXCEPT FROM HAVING ILIKE IN INTERPOLATE INTERSECT JOIN LIKE LIMIT NOT
    OFFSET ON OR OVER PREWHERE QUALIFY REPLACE SELECT SETS THEN TO UNION USING WHERE WITH DISTINCT
    STEP BETWEEN APPLY ESCAPE
    """
)
"""Keywords that a parenthesis may follow. None of them is the name of a function that is not allowed."""

TYPED: Final = frozenset({"cast", "_cast", "accuratecastornull", "jsonextract"})
"""Functions, in lower case, whose last argument is the name of a type. It has to be a literal."""

PATTERN_ARGUMENT: Final = {
    **dict.fromkeys(
        _names(
            "countmatches countmatchescaseinsensitive extractall extractallgroups extractallgroupshorizontal "
            "extractallgroupsvertical replaceregexpall"
        ),
        1,
    ),
    "splitbyregexp": 0,
}
"""Functions, in lower case, that find all matches of a pattern → index of that argument. See `patterns`."""

SEARCH_ARGUMENT: Final = dict.fromkeys(
    _names(
        "positioncaseinsensitive positioncaseinsensitiveutf8 countsubstringscaseinsensitive "
        "multisearchanycaseinsensitive ilike notilike"
    ),
    1,
)
"""Functions, in lower case, that compare a text at each position of another → index of that argument.

Their time is in proportion to the product of both lengths.
"""
SEARCH_CHARS_MAX: Final = 500

COMBINATORS: Final = _names("OrDefault OrNull Distinct ForEach ArgMax ArgMin Merge State Array Map If")
"""Suffixes of aggregate functions."""

AGGREGATES: Final = _names(
    """
    any any_value anyHeavy anyLast argMax argMin avg avgWeighted corr count covarPop covarSamp
    deltaSum deltaSumTimestamp entropy exponentialMovingAverage first_value groupArray
    groupArrayLast groupArrayMovingAvg groupArrayMovingSum groupArraySample groupArraySorted
    groupBitAnd groupBitOr groupBitXor groupConcat groupUniqArray histogram intervalLengthSum
    kurtPop kurtSamp last_value max maxIntersections maxMap max_by median medianDeterministic
    medianExact medianExactWeighted medianTDigest medianTiming min minMap min_by quantile
    quantileDeterministic quantileExact quantileExactWeighted quantileTDigest
    quantileTDigestWeighted quantileTiming quantiles quantilesExact quantilesTDigest quantilesTiming
    simpleLinearRegression singleValueOrNull skewPop skewSamp sparkbar stddevPop stddevSamp
    stddev_pop stddev_samp sum sumCount sumKahan sumMap sumWithOverflow topK topKWeighted uniq
    uniqCombined uniqCombined64 uniqExact uniqHLL12 uniqUpTo varPop varSamp var_pop var_samp
    windowFunnel sequenceCount sequenceMatch retention cume_dist dense_rank denseRank lag lagInFrame
    lead leadInFrame nth_value ntile percent_rank percentRank rank row_number
    """
)
"""Aggregate functions and window functions."""

ORDINARY: Final = _names(
    """
    and or xor not equals notEquals less greater lessOrEquals greaterOrEquals isDistinctFrom
    isNotDistinctFrom in notIn globalIn globalNotIn nullIn notNullIn globalNullIn globalNotNullIn
    exists like notLike ilike notILike match plus minus multiply divide divideOrNull intDiv
    intDivOrNull intDivOrZero modulo moduloOrNull moduloOrZero positiveModulo negate abs sign gcd
    lcm max2 min2 greatest least clamp isFinite isInfinite isNaN ifNotFinite ceil ceiling floor
    round roundBankers roundDown roundToExp2 trunc truncate exp exp2 exp10 log ln log2 log10 log1p
    sqrt cbrt pow power e pi sin cos tan asin acos atan atan2 sinh cosh tanh sigmoid widthBucket
    width_bucket bitAnd bitOr bitXor bitNot bitShiftLeft bitShiftRight bitTest bitCount
    bitHammingDistance if multiIf ifNull nullIf coalesce isNull isNotNull isNullable isZeroOrNull
    assumeNotNull toNullable caseWithExpression caseWithExpr caseWithoutExpr empty notEmpty length
    reverse transform materialize identity ignore toTypeName runningDifference rowNumberInBlock
    rowNumberInAllBlocks bar grouping formatReadableSize formatReadableDecimalSize
    formatReadableQuantity formatReadableTimeDelta array emptyArrayString emptyArrayUInt64 arrayAll
    arrayAvg arrayCompact arrayConcat arrayCount arrayCumSum arrayDifference arrayDistinct
    arrayDotProduct arrayElement arrayElementOrNull arrayEnumerate arrayEnumerateUniq arrayExists
    arrayFill arrayFilter arrayFirst arrayFirstIndex arrayFirstOrNull arrayFlatten arrayIntersect
    arrayJoin arrayLast arrayLastIndex arrayLastOrNull arrayMap arrayMax arrayMin arrayPopBack
    arrayPopFront arrayProduct arrayPushBack arrayPushFront arrayReverse arrayReverseSort arraySlice
    arraySort arraySplit arrayStringConcat arraySum arrayUniq arrayZip has indexOf range
    flatten tuple tupleElement tupleConcat tuplePlus tupleMinus tupleNames
    tupleToNameValuePairs map mapAdd mapApply mapConcat mapContains mapContainsKey
    mapContainsKeyLike mapExists mapAll mapExtractKeyLike mapFilter mapFromArrays mapKeys mapSort
    mapReverseSort mapSubtract mapUpdate mapValues mapContainsValue ascii char concat
    concatWithSeparator concat_ws endsWith startsWith format initcap left right leftUTF8 rightUTF8
    lengthUTF8 lcase lower lowerUTF8 ucase upper upperUTF8 leftPad rightPad lpad rpad repeat space
    substring substr mid substringIndex substringUTF8 trim trimBoth trimLeft trimRight ltrim rtrim
    toValidUTF8 isValidUTF8 reverseUTF8 firstLine char_length character_length octet_length overlay
    alphaTokens tokens ngrams splitByChar splitByNonAlpha splitByRegexp splitByString
    splitByWhitespace extract extractAll extractGroups extractAllGroups extractAllGroupsHorizontal
    extractAllGroupsVertical regexpExtract regexpQuoteMeta replace replaceAll replaceOne
    replaceRegexpAll replaceRegexpOne translate countMatches countMatchesCaseInsensitive
    countSubstrings countSubstringsCaseInsensitive hasToken hasTokenCaseInsensitive
    locate position positionCaseInsensitive positionCaseInsensitiveUTF8 positionUTF8 multiSearchAny
    multiSearchAnyCaseInsensitive multiSearchFirstIndex multiSearchFirstPosition base64Decode
    base64Encode tryBase64Decode base64URLDecode base64URLEncode hex unhex bin unbin
    encodeXMLComponent decodeXMLComponent cutFragment cutQueryString cutQueryStringAndFragment
    cutToFirstSignificantSubdomain cutURLParameter cutWWW decodeURLComponent decodeURLFormComponent
    domain domainWithoutWWW encodeURLComponent extractURLParameter extractURLParameterNames
    extractURLParameters firstSignificantSubdomain fragment netloc path pathFull port protocol
    queryString queryStringAndFragment topLevelDomain URLHierarchy URLPathHierarchy IPv4CIDRToRange
    IPv4NumToString IPv4StringToNum IPv4StringToNumOrNull IPv6CIDRToRange IPv6NumToString
    IPv6StringToNum isIPAddressInRange isIPv4String isIPv6String toIPv4 toIPv4OrNull toIPv6
    toIPv6OrNull isValidJSON JSONArrayLength JSONExtract JSONExtractArrayRaw JSONExtractBool
    JSONExtractFloat JSONExtractInt JSONExtractKeys JSONExtractKeysAndValuesRaw JSONExtractRaw
    JSONExtractString JSONExtractUInt JSONHas JSONKey JSONLength JSONType JSON_EXISTS JSON_QUERY
    JSON_VALUE toJSONString simpleJSONExtractBool simpleJSONExtractFloat simpleJSONExtractInt
    simpleJSONExtractRaw simpleJSONExtractString simpleJSONExtractUInt simpleJSONHas cityHash64
    farmHash64 intHash32 intHash64 MD5 murmurHash3_32 murmurHash3_64 SHA1 SHA256 sipHash64
    sipHash128 xxHash32 xxHash64 xxh3 crc32 jumpConsistentHash rand rand32 rand64 randCanonical
    UUIDNumToString UUIDStringToNum CAST accurateCastOrNull toBool toString
    toFixedString toLowCardinality toDate toDateOrNull toDateOrZero toDate32 toDateTime
    toDateTimeOrNull toDateTimeOrZero toDateTime64 toDateTime64OrNull toDateTime64OrZero toDecimal32
    toDecimal64 toDecimal128 toDecimal64OrNull toFloat32 toFloat32OrNull toFloat32OrZero toFloat64
    toFloat64OrNull toFloat64OrZero toInt8 toInt8OrNull toInt8OrZero toInt16 toInt16OrNull
    toInt16OrZero toInt32 toInt32OrNull toInt32OrZero toInt64 toInt64OrNull toInt64OrZero toInt128
    toInt256 toUInt8 toUInt8OrNull toUInt8OrZero toUInt16 toUInt16OrNull toUInt16OrZero toUInt32
    toUInt32OrNull toUInt32OrZero toUInt64 toUInt64OrNull toUInt64OrZero toUInt128 toUInt256 toUUID
    toUUIDOrNull toUUIDOrZero toIntervalDay toIntervalHour toIntervalMicrosecond
    toIntervalMillisecond toIntervalMinute toIntervalMonth toIntervalNanosecond toIntervalQuarter
    toIntervalSecond toIntervalWeek toIntervalYear addDays addHours addInterval addMicroseconds
    addMilliseconds addMinutes addMonths addNanoseconds addQuarters addSeconds addWeeks addYears
    subtractDays subtractHours subtractMilliseconds subtractMinutes subtractMonths subtractSeconds
    subtractWeeks subtractYears age date date_diff dateDiff timestampDiff timestamp_diff dateName
    date_trunc dateTrunc date_bin time_bucket timestamp formatDateTime date_format from_unixtime
    fromUnixTimestamp fromUnixTimestamp64Micro fromUnixTimestamp64Milli fromUnixTimestamp64Nano
    fromUnixTimestamp64Second makeDate makeDateTime makeDateTime64 monthName now now64 today
    yesterday current_date current_timestamp curdate parseDateTime parseDateTimeBestEffort
    parseDateTimeBestEffortOrNull parseDateTime64BestEffort parseDateTime64BestEffortOrNull timeSlot
    toTimeZone timezoneOf timezoneOffset toDayOfMonth toDayOfWeek toDayOfYear
    toDaysInMonth toHour toISOWeek toISOYear toLastDayOfMonth toMillisecond toMinute toMonday
    toMonth toQuarter toRelativeDayNum toRelativeHourNum toRelativeMinuteNum toRelativeMonthNum
    toRelativeSecondNum toRelativeWeekNum toSecond toStartOfDay toStartOfFifteenMinutes
    toStartOfFiveMinutes toStartOfHour toStartOfInterval toStartOfMicrosecond toStartOfMillisecond
    toStartOfMinute toStartOfMonth toStartOfNanosecond toStartOfQuarter toStartOfSecond
    toStartOfTenMinutes toStartOfWeek toStartOfYear toUnixTimestamp toUnixTimestamp64Micro
    toUnixTimestamp64Milli toUnixTimestamp64Nano toUnixTimestamp64Second toWeek toYear toYearWeek
    toYYYYMM toYYYYMMDD toYYYYMMDDhhmmss
    second minute hour day week month quarter year dayOfMonth dayOfWeek dayOfYear
    """
)
"""Other functions, also those that the engine puts in place of operators."""

_AGGREGATES_LOWER: Final = frozenset(name.lower() for name in AGGREGATES)
_ORDINARY_LOWER: Final = frozenset(name.lower() for name in ORDINARY)


def is_allowed_function(name: str) -> bool:
    """Return whether a call of this function is allowed. The case of its name does not matter."""
    return name.lower() in _ORDINARY_LOWER or _is_aggregate(name)


def _is_aggregate(name: str) -> bool:
    """Return whether an aggregate function is allowed; its name may have several combinators."""
    if name.lower() in _AGGREGATES_LOWER:
        return True
    return any(name.endswith(suffix) and _is_aggregate(name.removesuffix(suffix)) for suffix in COMBINATORS)
