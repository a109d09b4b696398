//! Processor time of this thread: what the work costs, however busy the machine is with something else.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

/// Measures from its start.
pub struct Stopwatch {
    on_cpu: Option<Duration>,
    wall: Instant,
}

impl Stopwatch {
    /// Starts.
    pub fn start() -> Self {
        Self {
            on_cpu: on_cpu(),
            wall: Instant::now(),
        }
    }

    /// Processor time since the start; wall time where the kernel does not tell.
    pub fn elapsed(&self) -> Duration {
        let on_cpu = self.on_cpu.zip(on_cpu());
        let elapsed = on_cpu.map(|(start, now)| now.saturating_sub(start));
        elapsed
            .filter(|elapsed| !elapsed.is_zero())
            .unwrap_or_else(|| self.wall.elapsed())
    }
}

/// The kernel brings its books up to date when a thread gives way.
fn on_cpu() -> Option<Duration> {
    thread::yield_now();
    let books = fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    books
        .split_ascii_whitespace()
        .next()?
        .parse()
        .ok()
        .map(Duration::from_nanos)
}
