//! Clock guard: prevents implausible start times from creating partitions, and old spans from being deleted on arrival.
//!
//! | start time | stored timestamp | reported |
//! |---|---|---|
//! | absent (0), before 1990, too far in the future, beyond `DateTime64` | receive time | warning |
//! | so old that the retention would delete it within the margin | receive time | counted, no warning |
//! | any other | start time | – |
//!
//! Invariant: a replaced time is kept as a span attribute. The duration is the difference of the times as
//! sent and never negative. It is 0 if either time is unusable: a start of 0 means "no start", and an end
//! beyond `DateTime64` is not a time.

/// 1990-01-01. Times sent in milliseconds or seconds by mistake fall before it.
const START_UNIX_NANO_MIN: u64 = 631_152_000 * NANOS_PER_S;
/// `DateTime64(9)` ends on 2262-04-11.
const UNIX_NANO_MAX: u64 = i64::MAX as u64;
const NANOS_PER_S: u64 = 1_000_000_000;
const S_PER_DAY: u64 = 86_400;

/// Range of start times that are stored as sent.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    /// Days until spans are deleted; 0 means never.
    pub retention_days: u32,
    /// A span is late if it would be deleted within this many days.
    pub late_margin_days: u32,
    /// Maximum distance of a start time into the future, from the receive time.
    pub ahead_s_max: u32,
}

/// Stored times of one span.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamp {
    /// Nanoseconds since 1970.
    pub timestamp: i64,
    /// Nanoseconds.
    pub duration: u64,
    /// The start time as sent, if it was replaced.
    pub start_replaced: Option<u64>,
    /// Whether the start time was replaced because it is old, not because it is wrong.
    pub late: bool,
    /// The end time as sent, if it is implausible.
    pub end_ignored: Option<u64>,
}

impl Window {
    /// Returns the times to store for a span received at `received_at_ns`.
    #[must_use]
    #[inline]
    pub fn stamp(&self, start: u64, end: u64, received_at_ns: i64) -> Stamp {
        // A clock before 1970 must not make the window wrap around.
        let received = u64::try_from(received_at_ns).unwrap_or_default();
        let latest = received
            .saturating_add(u64::from(self.ahead_s_max) * NANOS_PER_S)
            // a large `ahead_s_max` must not admit times that the column cannot hold
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
            // Computed from the times as sent, so that a replaced start does not change it.
            duration: if start == 0 || end_ignored.is_some() {
                0
            } else {
                // The end precedes the start if the sender's clock was set back in between.
                end.saturating_sub(start)
            },
            start_replaced: (implausible || late).then_some(start),
            late,
            end_ignored,
        }
    }

    fn oldest(&self, received: u64) -> u64 {
        // Without a retention no span is deleted, so none is late.
        if self.retention_days == 0 {
            return 0;
        }
        // A margin as long as the retention would make every span late; the policy rejects it.
        let kept_days = u64::from(self.retention_days.saturating_sub(self.late_margin_days));
        received.saturating_sub(kept_days * S_PER_DAY * NANOS_PER_S)
    }
}

/// Clamps the time of an event, which decides no partition, to the range of `DateTime64`.
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
        let stamp = stamp(start, start);
        assert_eq!(stamp.timestamp, saturated(NOW), "start {start}");
        assert_eq!(stamp.start_replaced, Some(start), "start {start}");
        assert_eq!(stamp.late, late, "start {start}");
    }

    fn assert_kept(start: u64) {
        let stamp = stamp(start, start.saturating_add(5));
        assert_eq!(
            stamp,
            Stamp {
                timestamp: saturated(start),
                duration: 5,
                ..Stamp::default()
            },
            "start {start}"
        );
    }

    #[test]
    fn implausible_start_times_are_replaced() {
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
    fn start_times_about_to_expire_are_late_without_a_warning() {
        assert_replaced(NOW - 27 * DAY - 1, true);
        assert_replaced(START_UNIX_NANO_MIN, true);
    }

    #[test]
    fn plausible_start_times_are_stored_as_sent() {
        for start in [NOW - 27 * DAY, NOW, NOW + 3_600 * NANOS_PER_S] {
            assert_kept(start);
        }
    }

    #[test]
    fn no_span_is_late_without_a_retention() {
        let window = Window {
            retention_days: 0,
            late_margin_days: 3,
            ahead_s_max: 3_600,
        };

        assert!(!window.stamp(START_UNIX_NANO_MIN, 0, saturated(NOW)).late);
    }

    #[test]
    fn duration_uses_the_times_as_sent_and_is_never_negative() {
        assert_eq!(stamp(1_000, 1_500).duration, 500);
        assert_eq!(stamp(NOW, NOW - 1).duration, 0);
        assert_eq!(stamp(NOW - 40 * DAY, NOW).duration, 40 * DAY);
    }

    #[test]
    fn duration_is_zero_without_a_start_or_with_an_invalid_end() {
        assert_eq!(stamp(0, NOW).duration, 0);
        let without_end = stamp(NOW, u64::MAX);
        assert_eq!(
            (without_end.duration, without_end.end_ignored),
            (0, Some(u64::MAX))
        );
    }
}
