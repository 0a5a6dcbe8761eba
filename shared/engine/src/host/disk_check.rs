//! Shell: problems of the disk that has a database, before it is full.

use saga_core::service_stats::StoreStats;

use super::settings::StoreSettings;

/// Describes why no new work may begin: what is in flight needs the rest of the disk. `None` while there is enough.
pub(super) fn is_nearly_full(stats: &StoreStats, settings: &StoreSettings) -> Option<String> {
    let free = stats.free_bytes.filter(|free| *free < settings.free_bytes_minimum)?;
    Some(format!(
        "only {} are free on the disk of the database: no new work is accepted until there are {} \
         (store.free_bytes_minimum)",
        shown(free),
        shown(settings.free_bytes_minimum)
    ))
}

/// Describes a disk that is getting full, or a log that grows without bound; `None` if all is well.
pub(super) fn problem(stats: &StoreStats, settings: &StoreSettings) -> Option<String> {
    let low = stats.free_bytes.filter(|free| *free < settings.free_bytes_warning).map(|free| {
        format!("only {} are free on the disk of the database (store.free_bytes_warning)", shown(free))
    });
    let long = stats.log_bytes.filter(|log| *log > settings.log_bytes_warning).map(|log| {
        format!(
            "the write-ahead log of the database has {}: another process has been reading the file for long, and \
             keeps the log from being emptied; find it with: fuser -v {}",
            shown(log),
            settings.shown_url().trim_start_matches("sqlite:")
        )
    });
    is_nearly_full(stats, settings).or(low).or(long)
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
            let found = (problem(&stats, &settings).is_some(), is_nearly_full(&stats, &settings).is_some());
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
    }
}
