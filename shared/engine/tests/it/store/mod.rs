//! Conformance suite of the stores, run for each implementation, and tests of each implementation.

mod additional_rows;
mod batches;
mod closed_rows;
mod dead_letters;
mod going_back;
mod history;
mod log_scan;
mod maintenance;
mod messages;
mod outbox;
mod postgres_connections;
mod postgres_outages;
mod postgres_pooler;
pub mod postgres_shared;
mod postgres_signals;
mod queries;
mod retention;
mod row_retention;
mod sqlite_damage;
mod sqlite_data_loss;
mod sqlite_file;
mod sqlite_reading;
mod sqlite_unusable;
mod tasks;
mod unwritable;

use std::borrow::Borrow;
use std::future::{Ready, ready};
use std::path::PathBuf;
use std::sync::Arc;

use rusqlite::Connection;
use saga_core::service::Service as _;
use saga_engine::store::sqlite::SqliteStore;
use saga_engine::store::{Store, StoreFault};
use tempfile::TempDir;

use crate::support::{Depot, PostgresServer, new_postgres};

/// Empty database, deleted when dropped.
struct Database {
    store: Arc<dyn Store>,
    _folder: Option<TempDir>,
    _server: Option<PostgresServer>,
}

/// SQLite file of the depot, deleted when dropped.
struct DepotFile(TempDir);

impl DepotFile {
    fn new() -> Result<(Self, SqliteStore), StoreFault> {
        let file = Self(tempfile::tempdir().expect("a folder"));
        let store = file.open()?;
        Ok((file, store))
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("depot.db")
    }

    fn open(&self) -> Result<SqliteStore, StoreFault> {
        SqliteStore::open(&self.path(), Depot::rows())
    }

    /// Changes the database behind the store's back.
    fn execute(&self, sql: &str) {
        let conn = Connection::open(self.path()).expect("the file");
        assert!(conn.execute(sql, []).expect("the change") > 0, "{sql} changed nothing");
    }
}

async fn on_a_server() -> Database {
    let (server, store) = new_postgres().await;
    Database { store: Arc::new(store), _folder: None, _server: Some(server) }
}

fn sqlite_in_a_file() -> Ready<Database> {
    let folder = tempfile::tempdir().expect("a folder");
    let store = SqliteStore::open(&folder.path().join("depot.db"), Depot::rows()).expect("a new database");
    ready(Database { store: Arc::new(store), _folder: Some(folder), _server: None })
}

fn sqlite_in_memory() -> Ready<Database> {
    let store = SqliteStore::in_memory(Depot::rows()).expect("a database in memory");
    ready(Database { store: Arc::new(store), _folder: None, _server: None })
}

/// Runs the conformance suite for the implementation that `$open` opens. Each check is a test with a name of its own.
macro_rules! conformance {
    ($name:ident, $open:path) => {
        conformance! { $name, $open,
            batches {
                written_batch_is_read_back,
                missing_row_is_not_loaded,
                update_of_row_changed_meanwhile_conflicts_and_leaves_nothing,
                insert_of_row_created_meanwhile_conflicts_and_leaves_nothing,
                batch_that_fails_late_leaves_nothing,
                batch_that_panics_leaves_nothing_and_next_batch_succeeds,
                failing_batch_fails_no_other,
                concurrent_updates_of_one_row_are_all_kept,
                row_of_undeclared_kind_is_rejected,
            }
            history {
                rows_at_position_omits_later_rows,
                changed_rows_are_read_page_by_page,
                event_fingerprint_distinguishes_events,
                changed_rows_are_verified,
                accepted_loss_is_recorded_once_per_name,
            }
            additional_rows {
                batch_may_request_more_rows_before_decision,
                batch_with_requested_rows_is_guarded_by_last_read_versions,
            }
            messages {
                inbox_state_is_kept_per_step,
                retry_is_replaced_by_next_attempt_and_deleted_when_done,
                processed_message_is_counted_once,
                reply_to_key_is_kept,
                second_reply_to_key_is_rejected,
                dead_letters_are_listed_newest_first_with_payload,
                message_dead_lettered_again_stays_one_dead_letter,
            }
            dead_letters {
                dead_letter_is_read_as_stored,
                missing_dead_letter_is_not_loaded,
                edited_dead_letter_keeps_inbox_id,
                dead_letter_stays_in_inbox_of_its_step,
                open_dead_letters_are_counted_in_stats_and_message_counts,
                foreign_message_is_in_no_message_count,
                retry_keeps_dead_letter_id_and_delivery,
                replayed_task_is_unclaimed_and_due_at_once,
                open_task_is_not_created_twice,
            }
            tasks {
                retries_of_other_steps_are_left_alone_and_do_not_count,
                limit_of_zero_tasks_claims_none,
                new_task_belongs_to_writer_until_lease_expires,
                restarted_owner_recovers_only_its_own_tasks,
                restarted_owner_recovers_tasks_beyond_limit,
                failed_task_waits_for_next_attempt,
                open_task_is_loaded_with_claim,
                finished_task_is_deleted,
                claim_by_clock_ahead_is_taken_over_and_fenced,
                delay_by_clock_ahead_is_over_at_once,
                task_is_claimed_by_one_owner,
                due_rows_are_ordered_by_time,
                due_retries_carry_payload,
                next_due_time_is_earliest_of_rows_retries_tasks_and_leases,
            }
            outbox {
                leases_of_different_names_are_independent,
                entries_are_pending_in_order_of_decision,
                settled_entry_is_not_pending_and_counted,
                settlement_stops_before_unpublished_entry,
                later_entries_of_saga_are_blocked_by_failed_entry,
                entry_behind_two_failed_entries_waits_for_both,
                new_entry_behind_failed_one_is_blocked_not_pending,
                entry_that_fails_again_blocks_later_entries_again,
                entry_published_out_of_sequence_is_republished_by_its_own_time,
                entries_published_since_time_are_republished,
                rejected_republication_does_not_fail_entry,
                published_entries_are_trimmed_by_the_time_of_their_publication,
                trimming_keeps_published_position,
                kept_since_is_time_of_oldest_kept_publication,
                repeated_settlement_counts_once,
                rejected_entry_fails_without_blocking_other_sagas,
                failed_entries_become_pending_on_retry,
                delayed_entry_delays_later_entries,
                lease_has_one_owner_at_a_time,
                renewal_keeps_fence,
                restarted_owner_gets_higher_fence_at_once,
                owner_of_expired_lease_cannot_settle,
                owner_of_expired_lease_cannot_renew,
                lease_by_clock_ahead_is_taken_over,
            }
            queries {
                rows_are_found_by_their_fields,
                rows_are_found_by_text_in_any_case,
                text_with_nul_character_matches_nothing,
                rows_with_long_texts_are_stored_and_found_by_them,
                rows_are_found_in_the_order_of_their_ids,
                pages_are_contiguous_in_both_directions,
                rows_are_found_from_a_value_on,
                rows_are_sorted_by_a_field_and_then_by_their_id,
                pages_of_sorted_rows_are_contiguous_in_both_directions,
                rows_are_counted_with_related_rows,
                rows_are_counted_by_the_value_of_a_field_largest_group_first,
                history_is_read_oldest_first,
                pages_of_history_are_contiguous,
            }
            retention {
                old_events_are_purged_behind_snapshot,
                rows_equal_their_folds_after_any_purge,
                verification_in_parts_reports_no_correct_row_during_purge,
                purge_batch_contains_every_purged_event,
                last_event_of_row_is_kept_and_position_is_known,
                same_scan_is_purged_once,
                history_with_gap_is_not_purged,
                closed_dead_letters_are_purged_and_stay_counted,
                reopened_dead_letter_is_not_purged,
            }
            maintenance {
                every_row_equals_the_fold_of_its_events,
                rebuild_restores_every_row,
                overrides_are_replaced_only_at_current_revision,
                rebuild_of_undeclared_kind_fails,
                stats_count_waiting_work,
                finished_entries_are_trimmed_by_age_in_chunks,
                old_inbox_ids_are_trimmed_anywhere,
                old_inbox_ids_behind_recent_ones_of_old_sagas_are_trimmed,
            }
        }
    };
    ($name:ident, $open:path, $($module:ident { $($test:ident,)+ })+) => {
        mod $name {
            use super::Borrow;

            $($(
                #[tokio::test]
                async fn $test() -> Result<(), super::StoreFault> {
                    let database = $open().await;
                    super::$module::$test(Borrow::borrow(&database.store)).await
                }
            )+)+
        }
    };
}

conformance!(on_sqlite_in_a_file, super::sqlite_in_a_file);
conformance!(on_sqlite_in_memory, super::sqlite_in_memory);
conformance!(on_postgres, super::on_a_server);
