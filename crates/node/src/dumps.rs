//! A core dump would put keys and shares on a disk.

use rustix::process::{Resource, Rlimit, setrlimit};

/// Keeps this process, and those it starts, from leaving core dumps, and others of the same user from reading its memory.
///
/// # Errors
/// What the system said.
pub fn forbid_core_dumps() -> std::io::Result<()> {
    setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })?;
    // The limit does not hold where the system pipes cores to a program (core(5)).
    #[cfg(target_os = "linux")]
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_os = "linux")]
    fn no_core_is_dumped_to_a_file_or_to_a_program() {
        forbid_core_dumps().unwrap();
        let limits = std::fs::read_to_string("/proc/self/limits").unwrap();
        let core = limits.lines().find(|line| line.starts_with("Max core file size")).unwrap();
        assert_eq!(core.split_whitespace().skip(4).take(2).collect::<Vec<_>>(), ["0", "0"]);
        let behavior = rustix::process::dumpable_behavior().unwrap();
        assert_eq!(behavior, rustix::process::DumpableBehavior::NotDumpable);
    }
}
