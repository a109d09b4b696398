"""Tests of the channel between supervisor and children."""

import socket

from receiver.channel import Channel, ChildChannel, Ready, Report, ShowRefusals, Start, Stop
from receiver.metrics import Metrics
from receiver.refusals import Refusal, RefusalReport
from receiver.settings import Drain, Settings


async def both_ends() -> tuple[ChildChannel, Channel]:
    ours, theirs = socket.socketpair()
    return await ChildChannel.from_socket(ours), await Channel.from_fd(theirs.detach())


async def test_messages_arrive_complete_and_in_order() -> None:
    supervisor, child = await both_ends()
    start = Start("intake-0", Settings(drain=(Drain(name="a", tokens=("s",)),)), listen_fd=7, start_ordinal=2)
    metrics = Metrics("intake-0")
    metrics.observe("commit_seconds", 0.5)
    report = Report(metrics.snapshot(), {"journal": ""})

    await supervisor.send(start)
    await supervisor.send(Stop())
    await child.send(Ready())
    await child.send(report)

    assert [await child.receive(), await child.receive()] == [start, Stop()]
    assert [await supervisor.receive(), await supervisor.receive()] == [Ready(), report]
    await supervisor.close()
    await child.close()


async def test_start_message_with_a_thousand_drains_is_delivered() -> None:
    supervisor, child = await both_ends()
    drains = tuple(Drain(name=f"drain-{number}", tokens=("s" * 64,)) for number in range(1_000))
    start = Start("intake-0", Settings(drain=drains), listen_fd=7, start_ordinal=0)

    await supervisor.send(start)

    assert await child.receive() == start
    await supervisor.close()
    await child.close()


async def test_message_to_a_child_that_hangs_neither_waits_nor_takes_memory() -> None:
    supervisor, child = await both_ends()
    large = ShowRefusals(RefusalReport(tuple(Refusal(reason="x", error="e" * 300) for _ in range(64))))

    sent = [supervisor.send_at_once(large) for _ in range(1_000)]

    assert 0 < (count := sum(sent)) < 100
    assert sent == [True] * count + [False] * (1_000 - count)
    assert [await child.receive() for _ in range(count)] == [large] * count
    assert supervisor.send_at_once(large)
    await supervisor.close()
    await child.close()


async def test_child_without_supervisor_receives_none_and_can_still_send() -> None:
    supervisor, child = await both_ends()

    await supervisor.close()

    assert await child.receive() is None
    await child.send(Ready())
    await child.send(Ready())
    await child.close()
