//! Shell: processor time and context switches of a process, from `/proc`.

use std::fs;

use anyhow::Context as _;

/// Ticks of `/proc` per second; the same on all supported platforms.
const TICKS_PER_S: u64 = 100;

/// Processor time of a process in microseconds.
pub fn cpu_us(pid: u32) -> anyhow::Result<u64> {
    // schedstat has nanoseconds, but excludes threads that have ended.
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let (_, fields) = stat.rsplit_once(')').context("a process has a name")?;
    let ticks = fields.split_whitespace().skip(11).take(2).map(str::parse::<u64>);
    let ticks = ticks.sum::<Result<u64, _>>()?;
    Ok(ticks * 1_000_000 / TICKS_PER_S)
}

/// Sum of the values of a name in a file with lines like `name: 7`.
pub fn number_in(text: &str, name: &str) -> u64 {
    let values = text.lines().filter_map(|line| line.split_once(':'));
    let values = values.filter(|(key, _)| *key == name);
    values.filter_map(|(_, value)| value.split_whitespace().next()?.parse::<u64>().ok()).sum()
}

/// Voluntary and involuntary context switches of all threads.
pub fn switches(pid: u32) -> anyhow::Result<(u64, u64)> {
    let (mut voluntary, mut involuntary) = (0, 0);
    for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
        // A thread may end meanwhile.
        let Ok(status) = fs::read_to_string(thread?.path().join("status")) else { continue };
        voluntary += number_in(&status, "voluntary_ctxt_switches");
        involuntary += number_in(&status, "nonvoluntary_ctxt_switches");
    }
    Ok((voluntary, involuntary))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_process_is_measured() {
        let own = std::process::id();
        let before = cpu_us(own).expect("it runs");
        let mut sum = 0_u64;
        while cpu_us(own).expect("it runs") < before + 20_000 {
            sum = (0..10_000).fold(sum, u64::wrapping_add);
        }
        let (voluntary, involuntary) = switches(own).expect("it runs");
        assert!(voluntary + involuntary > 0 && cpu_us(u32::MAX).is_err());
    }

    #[test]
    fn number_is_found_by_its_whole_name() {
        let text = "VmRSS:\t  120 kB\nnonvoluntary_ctxt_switches:\t7\nvoluntary_ctxt_switches:\t5\n";
        assert_eq!((number_in(text, "voluntary_ctxt_switches"), number_in(text, "VmRSS")), (5, 120));
        assert_eq!(number_in(text, "VmHWM"), 0);
    }
}
