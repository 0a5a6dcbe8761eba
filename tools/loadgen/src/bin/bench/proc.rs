//! Shell: what the kernel says of a process.

use std::fs;

use anyhow::Context as _;

/// Ticks of `/proc` in a second, on every Linux that this runs on.
const TICKS_PER_S: u64 = 100;

/// Time on processors so far, in microseconds; of this very process as of any other.
pub fn cpu_us(pid: u32) -> anyhow::Result<u64> {
    // The sum of all threads in nanoseconds is to be had of the living alone: those that ended are in the ticks.
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let (_, fields) = stat.rsplit_once(')').context("a process has a name")?;
    let ticks = fields.split_whitespace().skip(11).take(2).map(str::parse::<u64>);
    let ticks = ticks.sum::<Result<u64, _>>()?;
    Ok(ticks * 1_000_000 / TICKS_PER_S)
}

/// A number of a file of lines like `name: 7`, in which others may have the same name.
pub fn number_in(text: &str, name: &str) -> u64 {
    let values = text.lines().filter_map(|line| line.split_once(':'));
    let values = values.filter(|(key, _)| *key == name);
    values.filter_map(|(_, value)| value.split_whitespace().next()?.parse::<u64>().ok()).sum()
}

/// Times that threads of it were taken off a processor: that they gave it up, and that it was taken from them.
pub fn switches(pid: u32) -> anyhow::Result<(u64, u64)> {
    let (mut given_up, mut taken) = (0, 0);
    for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
        // One may end meanwhile.
        let Ok(status) = fs::read_to_string(thread?.path().join("status")) else { continue };
        given_up += number_in(&status, "voluntary_ctxt_switches");
        taken += number_in(&status, "nonvoluntary_ctxt_switches");
    }
    Ok((given_up, taken))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_can_be_looked_at() {
        let own = std::process::id();
        let before = cpu_us(own).expect("it runs");
        let mut sum = 0_u64;
        while cpu_us(own).expect("it runs") < before + 20_000 {
            sum = (0..10_000).fold(sum, u64::wrapping_add);
        }
        let (given_up, taken) = switches(own).expect("it runs");
        assert!(given_up + taken > 0 && cpu_us(u32::MAX).is_err());
    }

    #[test]
    fn a_number_is_found_by_its_whole_name() {
        let text = "VmRSS:\t  120 kB\nnonvoluntary_ctxt_switches:\t7\nvoluntary_ctxt_switches:\t5\n";
        assert_eq!((number_in(text, "voluntary_ctxt_switches"), number_in(text, "VmRSS")), (5, 120));
        assert_eq!(number_in(text, "VmHWM"), 0);
    }
}
