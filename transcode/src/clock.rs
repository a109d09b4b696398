//! The time guard: no start time may create partitions of its own or be deleted on arrival.
//!
//! | start time | stored under | said |
//! |---|---|---|
//! | absent (0), before 1990, too far ahead, beyond `DateTime64` | receive time | warning |
//! | so old that retention would delete it within the margin | receive time | counted, no warning |
//! | anything else | itself | – |
//!
//! Keeps: a time that was replaced survives as a span attribute, and the duration is the difference of
//! the times as sent, never negative. It is 0 where one of the two says nothing: a start of 0 is an
//! absent start, and an end beyond `DateTime64` is junk.

/// 1990-01-01: milliseconds and seconds taken for nanoseconds fall before it.
const START_UNIX_NANO_MIN: u64 = 631_152_000 * NANOS_PER_S;
/// `DateTime64(9)` ends on 2262-04-11.
const UNIX_NANO_MAX: u64 = i64::MAX as u64;
const NANOS_PER_S: u64 = 1_000_000_000;
const S_PER_DAY: u64 = 86_400;

/// Which start times are taken at their word.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    /// Days until spans are deleted; 0: for ever.
    pub retention_days: u32,
    /// Spans that would be deleted within so many days are late.
    pub late_margin_days: u32,
    /// How far ahead of the receive time a start may be.
    pub ahead_s_max: u32,
}

/// What is stored of a span's times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamp {
    /// Nanoseconds since 1970.
    pub timestamp: i64,
    /// Nanoseconds.
    pub duration: u64,
    /// The start as sent, if it was replaced.
    pub start_replaced: Option<u64>,
    /// It was replaced because it is old, not because it is wrong.
    pub late: bool,
    /// The end as sent, if it cannot be true.
    pub end_ignored: Option<u64>,
}

impl Window {
    /// What is stored of a span that came at `received_at_ns`.
    #[must_use]
    #[inline]
    pub fn stamp(&self, start: u64, end: u64, received_at_ns: i64) -> Stamp {
        let received = u64::try_from(received_at_ns).unwrap_or_default();
        let latest = received
            .saturating_add(u64::from(self.ahead_s_max) * NANOS_PER_S)
            .min(UNIX_NANO_MAX);
        let implausible = !(START_UNIX_NANO_MIN..=latest).contains(&start);
        let late = !implausible && start < self.oldest(received);
        let end_ignored = (end > UNIX_NANO_MAX).then_some(end);
        Stamp {
            timestamp: if implausible || late {
                received_at_ns.max(0)
            } else {
                saturated(start)
            },
            duration: if start == 0 || end_ignored.is_some() {
                0
            } else {
                end.saturating_sub(start)
            },
            start_replaced: (implausible || late).then_some(start),
            late,
            end_ignored,
        }
    }

    fn oldest(&self, received: u64) -> u64 {
        if self.retention_days == 0 {
            return 0;
        }
        let kept_days = u64::from(self.retention_days.saturating_sub(self.late_margin_days));
        received.saturating_sub(kept_days * S_PER_DAY * NANOS_PER_S)
    }
}

/// A time of no consequence (an event's), held inside `DateTime64`.
#[must_use]
#[inline]
pub fn saturated(unix_nano: u64) -> i64 {
    i64::try_from(unix_nano).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_800_000_000 * NANOS_PER_S;
    const DAY: u64 = S_PER_DAY * NANOS_PER_S;

    fn stamp(start: u64, end: u64) -> Stamp {
        let window = Window {
            retention_days: 30,
            late_margin_days: 3,
            ahead_s_max: 3_600,
        };
        window.stamp(start, end, saturated(NOW))
    }

    fn assert_replaced(start: u64, late: bool) {
        let found = stamp(start, start);
        assert_eq!(found.timestamp, saturated(NOW), "start {start}");
        assert_eq!(found.start_replaced, Some(start), "start {start}");
        assert_eq!(found.late, late, "start {start}");
    }

    fn assert_kept(start: u64) {
        let found = stamp(start, start.saturating_add(5));
        assert_eq!(
            found,
            Stamp {
                timestamp: saturated(start),
                duration: 5,
                ..Stamp::default()
            },
            "start {start}"
        );
    }

    #[test]
    fn start_times_that_cannot_be_true_are_replaced() {
        for start in [
            0,
            1,
            START_UNIX_NANO_MIN - 1,
            NOW + 3_600 * NANOS_PER_S + 1,
            UNIX_NANO_MAX + 1,
            u64::MAX,
        ] {
            assert_replaced(start, false);
        }
    }

    #[test]
    fn start_times_that_are_about_to_expire_are_late_not_wrong() {
        assert_replaced(NOW - 27 * DAY - 1, true);
        assert_replaced(START_UNIX_NANO_MIN, true);
    }

    #[test]
    fn everything_between_is_taken_at_its_word() {
        for start in [NOW - 27 * DAY, NOW, NOW + 3_600 * NANOS_PER_S] {
            assert_kept(start);
        }
    }

    #[test]
    fn nothing_is_late_when_spans_are_kept_for_ever() {
        let window = Window {
            retention_days: 0,
            late_margin_days: 3,
            ahead_s_max: 3_600,
        };

        assert!(!window.stamp(START_UNIX_NANO_MIN, 0, saturated(NOW)).late);
    }

    #[test]
    fn a_duration_comes_from_the_times_as_sent_and_is_never_negative() {
        assert_eq!(stamp(1_000, 1_500).duration, 500);
        assert_eq!(stamp(NOW, NOW - 1).duration, 0);
        assert_eq!(stamp(NOW - 40 * DAY, NOW).duration, 40 * DAY);
    }

    #[test]
    fn an_absent_start_or_a_junk_end_says_nothing_about_the_duration() {
        assert_eq!(stamp(0, NOW).duration, 0);
        let junk = stamp(NOW, u64::MAX);
        assert_eq!((junk.duration, junk.end_ignored), (0, Some(u64::MAX)));
    }
}
