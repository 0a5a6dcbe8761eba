//! Shell: limit on open files of this process, which bounds its connections.

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tracing::warn;

use super::connection_pool::PROBE_RESERVE;

/// Files beside client connections: the database, the broker, 128 task calls, requests to other services, and the
/// reserve for probes.
const OTHERS: u64 = 320 + PROBE_RESERVE as u64;

/// Raises the process's limit as far as allowed, and returns how many of `requested` connections fit.
pub(super) fn connection_limit(requested: usize) -> usize {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return requested };
    let limit =
        if soft < hard && setrlimit(Resource::RLIMIT_NOFILE, hard, hard).is_ok() { hard } else { soft };
    let allowed = bounded(requested, limit);
    if allowed < requested {
        warn!(
            "http.max_connections is {requested}, and this process may hold {limit} files open: {allowed} connections at \
             most; raise the limit (ulimit -n), or lower the setting"
        );
    }
    allowed
}

/// Leaves files to the rest of the process, or half of them where there are very few.
fn bounded(requested: usize, limit: u64) -> usize {
    let available = limit.saturating_sub(OTHERS.min(limit / 2)).max(1);
    usize::try_from(available).map_or(requested, |available| requested.min(available))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connection_limit_leaves_files_to_rest_of_process() {
        for (requested, limit, allowed) in [
            (10_000, u64::MAX, 10_000),
            (10_000, 20_000, 10_000),
            (10_000, 1_024, 640),
            (100, 1_024, 100),
            (10_000, 256, 128),
            (10_000, 0, 1),
        ] {
            assert_eq!(bounded(requested, limit), allowed, "{requested} of {limit}");
        }
    }
}
