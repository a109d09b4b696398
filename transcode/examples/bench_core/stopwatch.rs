//! Processor time of this thread: the cost of the work, independent of other load on the machine.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

/// Measures processor time from its start.
pub struct Stopwatch {
    on_cpu: Option<Duration>,
    wall: Instant,
}

impl Stopwatch {
    /// Starts the stopwatch.
    pub fn start() -> Self {
        Self {
            on_cpu: on_cpu(),
            wall: Instant::now(),
        }
    }

    /// Returns the processor time since the start, or wall time if the kernel does not provide it.
    pub fn elapsed(&self) -> Duration {
        let on_cpu = self.on_cpu.zip(on_cpu());
        let elapsed = on_cpu.map(|(start, now)| now.saturating_sub(start));
        elapsed
            .filter(|elapsed| !elapsed.is_zero())
            .unwrap_or_else(|| self.wall.elapsed())
    }
}

/// Returns the processor time of this thread. The kernel updates it when the thread yields.
fn on_cpu() -> Option<Duration> {
    thread::yield_now();
    let schedstat = fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    schedstat
        .split_ascii_whitespace()
        .next()?
        .parse()
        .ok()
        .map(Duration::from_nanos)
}
