//! What the examples that time gates share.

use std::time::Duration;

use covey_protocols::randomness::SessionKeys;

/// Keys of party `me` of three: the same at both ends of a pair.
pub fn keys(me: usize) -> SessionKeys {
    let key = |peer: usize| {
        let pair = [me.min(peer) as u8, me.max(peer) as u8];
        (peer != me).then(|| blake3::derive_key("covey example keys", &pair))
    };
    SessionKeys::new((0..3).map(key).collect())
}

/// CPU time of this thread, from the kernel's accounting.
pub fn cpu_time() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    Duration::from_nanos(text.split_whitespace().next().and_then(|ns| ns.parse().ok()).unwrap_or(0))
}
