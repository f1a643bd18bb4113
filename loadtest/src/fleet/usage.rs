//! What a process costs, as the kernel counts it in `/proc`.

use anyhow::Context as _;

/// Microseconds of one tick of `/proc/<pid>/stat`: Linux tells 100 a second to programs everywhere.
const TICK_MICROS: u64 = 10_000;

/// Processor time so far and the most memory at any moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Processor time, own and kernel's, in microseconds.
    pub cpu_micros: u64,
    /// Peak of resident memory, in bytes.
    pub peak_rss: u64,
}

impl Usage {
    /// Of a living process.
    pub fn of(pid: u32) -> anyhow::Result<Self> {
        let read = |file: &str| {
            let path = format!("/proc/{pid}/{file}");
            std::fs::read_to_string(&path).with_context(|| format!("reading {path}"))
        };
        Self::parse(&read("stat")?, &read("status")?).context("reading /proc")
    }

    fn parse(stat: &str, status: &str) -> Option<Self> {
        // The program's name may hold blanks and brackets; the fields after it do not.
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let ticks = fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?;
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
        let kib: u64 = peak.trim().strip_suffix("kB")?.trim().parse().ok()?;
        Some(Self { cpu_micros: ticks * TICK_MICROS, peak_rss: kib * 1024 })
    }

    /// Of several processes together: time is added, and so are the peaks.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        Self {
            cpu_micros: self.cpu_micros + other.cpu_micros,
            peak_rss: self.peak_rss + other.peak_rss,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_words_are_understood_whatever_the_programs_name() {
        let stat = "7 (a) b (c) S 1 7 7 0 -1 4194304 100 0 0 0 150 50 0 0 20 0 3 0 9 1 2";
        let status = "Name:\tx\nVmPeak:\t  9999 kB\nVmHWM:\t    2048 kB\nThreads:\t3\n";

        let usage = Usage::parse(stat, status);

        assert_eq!(usage, Some(Usage { cpu_micros: 2_000_000, peak_rss: 2 * 1024 * 1024 }));
    }

    #[test]
    fn this_process_uses_memory() {
        assert!(Usage::of(std::process::id()).expect("our own").peak_rss > 0);
    }
}
