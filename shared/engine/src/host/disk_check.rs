//! Shell: problems of the disk that has a database, before it is full.

use saga_core::service_stats::StoreStats;

use super::settings::StoreSettings;

/// Describes why no new work may begin: what is in flight needs the rest of the disk. `None` while there is enough.
pub(super) fn shortage(stats: &StoreStats, settings: &StoreSettings) -> Option<String> {
    let free = stats.free_bytes.filter(|free| *free < settings.free_bytes_minimum)?;
    let minimum = shown(settings.free_bytes_minimum);
    Some(format!(
        "{}, new work begins again from {minimum} on (store.free_bytes_minimum)",
        left(free, settings)
    ))
}

/// Describes a disk that is getting full, and a log that grows without bound; `None` if all is well. A long log may be what
/// fills the disk.
pub(super) fn problem(stats: &StoreStats, settings: &StoreSettings) -> Option<String> {
    let bound = settings.free_bytes_warning.max(settings.free_bytes_minimum);
    let low = stats.free_bytes.filter(|free| *free < bound).map(|free| left(free, settings));
    let long = stats.log_bytes.filter(|log| *log > settings.log_bytes_warning).map(|log| {
        format!(
            "the write-ahead log has {}, as something has been reading the database for long; find it with: fuser -v {}",
            shown(log),
            file(settings)
        )
    });
    let found: Vec<_> = low.into_iter().chain(long).collect();
    (!found.is_empty()).then(|| found.join("; "))
}

fn left(free: u64, settings: &StoreSettings) -> String {
    format!("{} are left on the disk of {}", shown(free), file(settings))
}

fn file(settings: &StoreSettings) -> String {
    settings.shown_url().trim_start_matches("sqlite:").to_owned()
}

fn shown(bytes: u64) -> String {
    format!("{} MiB", bytes >> 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn disk_warns_first_and_then_admits_no_work() {
        let settings = StoreSettings::default();
        for (free, warns, rejects) in [
            (256 * MIB, false, false),
            (256 * MIB - 1, true, false),
            (64 * MIB, true, false),
            (64 * MIB - 1, true, true),
        ] {
            let stats = StoreStats { free_bytes: Some(free), ..StoreStats::default() };
            let found = (problem(&stats, &settings).is_some(), shortage(&stats, &settings).is_some());
            assert_eq!(found, (warns, rejects), "{free}");
        }
        assert_eq!(problem(&StoreStats::default(), &settings), None, "unknown on a server");
    }

    #[test]
    fn long_log_is_named_with_its_size_and_its_file() {
        let settings = StoreSettings { url: "sqlite:data/order.db".to_owned(), ..StoreSettings::default() };
        let of = |log| problem(&StoreStats { log_bytes: Some(log), ..StoreStats::default() }, &settings);
        assert_eq!(of(256 * MIB), None);
        let long = of(338 * MIB).expect("it is long");
        assert!(long.contains("338 MiB") && long.contains("fuser -v data/order.db"), "{long}");
        let stats =
            StoreStats { free_bytes: Some(9 * MIB), log_bytes: Some(338 * MIB), ..StoreStats::default() };
        let both = problem(&stats, &settings).expect("it is long, and the disk nearly full");
        assert!(
            both.contains("9 MiB are left on the disk of data/order.db") && both.contains("338 MiB"),
            "{both}"
        );
    }
}
