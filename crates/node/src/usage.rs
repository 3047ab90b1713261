//! What this process has used so far of processor and memory, as Linux tells it. Other systems have no `/proc`: nothing is
//! reported there.

use std::fs;

use covey_kernels::device::peak_bytes;
use covey_messages::Usage;

/// Ticks a second in `/proc`: `USER_HZ`, which is part of Linux's interface and 100 wherever Rust runs.
const TICKS: f64 = 100.0;

/// Processor seconds of all threads since the process began, user and system together.
pub(crate) fn cpu_seconds() -> Option<f64> {
    cpu_seconds_of(&fs::read_to_string("/proc/self/stat").ok()?)
}

/// What was used since `cpu_seconds` returned `before`; the memory is the most the process ever held.
pub(crate) fn since(before: Option<f64>) -> Usage {
    let cpu_seconds = cpu_seconds().zip(before).map(|(now, then)| now - then);
    let status = fs::read_to_string("/proc/self/status").ok();
    let gpu_memory_bytes = Some(peak_bytes()).filter(|bytes| *bytes > 0);
    Usage { cpu_seconds, peak_memory_bytes: status.and_then(|text| peak_memory_of(&text)), gpu_memory_bytes }
}

/// From the fields of `/proc/self/stat`: the fourteenth and fifteenth are user and system time (proc_pid_stat(5)).
fn cpu_seconds_of(stat: &str) -> Option<f64> {
    // The second field, the program's name, is in parentheses and may hold spaces and parentheses itself.
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace().skip(11);
    let mut ticks = || fields.next()?.parse::<u64>().ok();
    Some((ticks()? + ticks()?) as f64 / TICKS)
}

/// From `/proc/self/status`: the resident set's high-water mark, which is given in units of 1024 bytes.
fn peak_memory_of(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fields_are_found_behind_any_name() {
        let stat = "7 (a) b (c) S 1 7 7 0 -1 4194560 100 0 0 0 250 50 9 9 20 0 1 0 12 345 6";
        assert_eq!(cpu_seconds_of(stat), Some(3.0));
        assert_eq!(cpu_seconds_of("7 (a) S 1"), None);
        assert_eq!(cpu_seconds_of(""), None);
        assert_eq!(peak_memory_of("Name:\ta\nVmHWM:\t    2048 kB\nVmRSS:\t1 kB\n"), Some(2 << 20));
        assert_eq!(peak_memory_of("Name:\ta\n"), None);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn work_and_memory_show() {
        let before = cpu_seconds();
        let mut filled = vec![1u8; 64 << 20];
        while since(before).cpu_seconds < Some(0.05) {
            filled[..1 << 16].iter_mut().for_each(|byte| *byte = byte.wrapping_mul(3));
        }
        assert!(std::hint::black_box(&filled)[0] % 2 == 1);
        assert!(since(before).peak_memory_bytes >= Some(64 << 20));
    }
}
