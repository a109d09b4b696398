"""Tests of the commit rate, which refuses deliveries that could not be acknowledged in time."""

from __future__ import annotations

import asyncio

import pytest

from receiver.errors import Overloaded
from receiver.intake.group import GROUP_TARGET_S, CommitRate
from receiver.intake.pending import GROUP_BYTES_MAX
from receiver.settings import MIB, Limits
from tests.support.cases import each_case
from tests.support.intake import SPAN_BODY, CoreDouble, on_uvloop, request, running, until

DEADLINE_S = 5.0


def is_accepted(rate: CommitRate, queued_bytes: int) -> bool:
    try:
        rate.refuse_if_overloaded(queued_bytes, DEADLINE_S)
    except Overloaded:
        return False
    return True


SMALL, BUSY, LARGE = (400, 0.0001), (400, 0.005), (10_000_000, 0.1)
"""Groups: a small one, a small one while the machine was busy, a large one. Bytes and seconds."""


def rate_after(*groups: tuple[int, float]) -> CommitRate:
    """Return the rate after groups of this weight and duration."""
    rate = CommitRate()
    for weight_bytes, seconds in groups:
        rate.observe(weight_bytes, seconds)
    return rate


@each_case(
    ("groups", "accepted_bytes", "refused_bytes"),
    [
        pytest.param([(1_000, 1.0)] * 20, 2_400, 2_600, id="half of the deadline"),
        pytest.param([], 100 * MIB, 1_000 * MIB, id="initial rate of an ordinary core"),
        pytest.param([(1, 3_600.0)] * 30, 0, 1, id="empty queue after slow groups"),
        pytest.param([(1_000_000, 30.0), *[(1_000_000, 0.01)] * 10], 10_000_000, None, id="one slow group"),
        pytest.param([*[LARGE] * 20, (1_000, 0.1)], 100_000_000, None, id="delayed small group"),
        pytest.param([*[LARGE] * 20, *[SMALL] * 200], 200_000_000, None, id="small groups after large ones"),
        pytest.param([(400, 0.004)] * 20, 0, 400_000, id="expensive small groups"),
        *(
            pytest.param(
                [*[SMALL] * 200, *[BUSY] * slow_count, *[SMALL] * 50],
                32_000_000,
                None,
                id=f"{slow_count} of many small groups were slow",
            )
            for slow_count in (0, 1, 5)
        ),
    ],
)
def test_delivery_is_refused_if_it_would_wait_for_half_of_its_deadline(
    groups: list[tuple[int, float]], accepted_bytes: int, refused_bytes: int | None
) -> None:
    rate = rate_after(*groups)

    assert is_accepted(rate, accepted_bytes)
    assert refused_bytes is None or not is_accepted(rate, refused_bytes)


def test_groups_in_progress_count_as_load() -> None:
    rate = rate_after(*[(1_000, 1.0)] * 20)
    rate.bytes_in_progress = 2_000

    assert not is_accepted(rate, 600)


def test_group_is_limited_to_its_target_duration() -> None:
    for seconds in (0.4, 40.0):
        rate = rate_after(*[(4_000, seconds)] * 20)

        assert rate.group_bytes_max == pytest.approx(4_000 * GROUP_TARGET_S / seconds, rel=0.01)
    assert rate_after(*[(4_000, 0.0)] * 2_000).group_bytes_max >= GROUP_BYTES_MAX


@on_uvloop
async def test_overload_gets_503_before_the_body_is_read() -> None:
    core = CoreDouble()
    async with running(core=core, limits=Limits(answer_deadline_s=0.001)) as intake:
        connection = await intake.connect()
        await until(lambda: intake.server.connection_count == 1)
        core.may_continue.clear()
        first = asyncio.create_task(intake.post(SPAN_BODY + b" " * 100_000))
        await asyncio.to_thread(core.running.wait)
        refused = await connection.exchange(request(SPAN_BODY)[:-1])
        await connection.close()
        core.may_continue.set()
        await first
        await until(lambda: intake.admission.bytes_in_flight == 0)

    assert (refused.status, refused.headers["retry-after"]) == (503, "2")
