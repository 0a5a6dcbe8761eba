//! What every store promises, told once and run for each implementation.

mod along_the_log;
mod batches;
mod dead_letters;
mod departures;
mod leaving_rows;
mod messages;
mod outbox;
mod past;
mod postgres_losing;
mod postgres_shared;
mod queries;
mod reading_more;
mod sqlite_failing;
mod sqlite_file;
mod sqlite_losing;
mod sqlite_reading;
mod tasks;
mod upkeep;

use std::future::{Ready, ready};
use std::sync::Arc;

use saga_core::service::Service as _;
use saga_engine::store::Store;
use saga_engine::store::sqlite::SqliteStore;
use tempfile::TempDir;

use crate::support::{Depot, PostgresServer, new_postgres};

/// An empty database of its own, gone when dropped.
struct Database {
    store: Arc<dyn Store>,
    _folder: Option<TempDir>,
    _server: Option<PostgresServer>,
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

/// Runs the whole suite for the implementation that `$open` opens.
///
/// A macro, because every promise shall be a test of its own, with its own name, for each implementation.
macro_rules! conformance {
    ($name:ident, $open:path) => {
        conformance! { $name, $open,
            batches {
                what_is_written_is_read_back,
                a_row_that_is_not_there_is_not_loaded,
                a_change_of_a_row_that_changed_meanwhile_is_a_conflict_and_leaves_nothing,
                a_row_that_somebody_made_meanwhile_is_a_conflict_and_leaves_nothing,
                a_batch_that_fails_late_leaves_nothing,
                a_batch_that_panics_leaves_nothing_and_the_next_one_goes_on,
                a_failing_batch_fails_no_other,
                concurrent_changes_of_one_row_lose_none,
                rows_of_a_kind_that_nobody_declared_are_refused,
            }
            past {
                a_row_is_told_as_it_was_and_one_that_was_not_there_is_not,
                what_has_changed_is_told_once_page_by_page,
                an_event_is_told_from_any_other_in_its_place,
                rows_that_have_changed_are_checked_against_their_events,
            }
            reading_more {
                a_batch_may_ask_for_more_rows_before_it_is_decided,
                a_batch_that_asked_for_more_rows_is_guarded_by_the_versions_it_read_last,
            }
            messages {
                a_message_is_known_as_handled_waiting_or_parked_per_step,
                a_retry_is_overwritten_by_the_next_and_gone_when_done,
                a_handled_message_is_counted_once,
                an_answer_under_a_key_is_kept,
                a_second_answer_under_a_key_is_refused,
                dead_letters_come_newest_first_with_their_payload,
                a_message_that_dies_again_stays_one_dead_letter,
            }
            dead_letters {
                a_dead_letter_comes_back_as_it_was_stored,
                a_dead_letter_that_is_not_there_is_not_loaded,
                a_changed_dead_letter_keeps_the_name_under_which_its_step_knows_it,
                a_dead_letter_is_known_to_its_step_whatever_becomes_of_it,
                dead_letters_that_wait_or_are_replayed_are_counted_and_the_tallies_know_the_rest,
                what_nobody_of_this_system_sent_is_in_no_tally,
                a_retry_of_a_dead_letter_comes_back_with_its_dead_letter_and_its_place,
                a_task_that_is_taken_up_again_is_claimed_by_nobody_and_due_at_once,
                a_task_that_is_open_is_not_taken_up_a_second_time,
            }
            tasks {
                retries_of_paused_steps_stay_where_they_are_and_take_up_no_places,
                a_look_for_no_tasks_claims_none,
                a_new_task_belongs_to_its_writer_until_the_lease_lapses,
                a_restarted_owner_recovers_its_own_tasks_at_once_and_nobody_elses,
                a_restarted_owner_recovers_more_tasks_than_one_look_takes,
                a_failed_task_waits_for_its_next_try,
                an_open_task_is_loaded_with_its_claim,
                a_task_that_is_over_is_gone,
                a_claim_of_a_clock_that_was_ahead_is_taken_over_and_its_failure_has_no_effect,
                what_a_clock_that_was_ahead_put_off_is_due_at_once,
                two_owners_never_claim_the_same_task,
                due_rows_come_in_the_order_of_their_time,
                due_retries_come_with_their_payload,
                the_next_time_is_the_earliest_of_rows_retries_tasks_and_leases,
            }
            outbox {
                leases_of_different_names_are_held_by_whoever_took_each,
                entries_are_published_in_the_order_of_decision,
                a_settled_entry_is_out_of_the_way_and_counted,
                nothing_is_settled_past_an_entry_that_was_not_published,
                what_a_saga_promised_after_a_failed_entry_waits_for_it,
                an_entry_held_behind_two_failed_ones_waits_for_both,
                what_is_promised_behind_a_failed_entry_does_not_wait_for_the_broker,
                an_entry_that_fails_again_holds_what_follows_it_again,
                what_was_published_out_of_line_is_published_again_by_the_time_of_that,
                what_was_published_since_a_time_is_published_again,
                a_repetition_that_is_refused_is_only_not_repeated,
                published_entries_are_trimmed_by_the_time_of_their_publication,
                what_is_trimmed_does_not_move_the_line,
                what_is_kept_says_since_when,
                a_settlement_repeated_counts_nothing,
                a_refused_entry_fails_and_the_others_go_on,
                failed_entries_are_put_back_in_line,
                a_delayed_entry_holds_up_what_is_behind_it,
                one_owner_at_a_time_holds_the_lease,
                a_renewal_keeps_its_fence,
                a_restarted_owner_gets_a_higher_fence_at_once,
                a_lapsed_owner_cannot_settle,
                a_lapsed_owner_cannot_renew,
                a_lease_of_a_clock_that_was_ahead_is_taken_over,
            }
            queries {
                rows_are_found_by_their_fields,
                rows_are_found_by_text_in_any_case,
                a_text_with_a_zero_character_is_found_nowhere,
                rows_are_found_in_the_order_of_their_ids,
                pages_follow_each_other_in_both_directions,
                rows_are_found_from_a_value_on,
                rows_are_sorted_by_a_field_and_then_by_their_id,
                pages_of_sorted_rows_follow_each_other_in_both_directions,
                rows_are_counted_together_with_those_they_name,
                rows_are_counted_by_the_value_of_a_field_largest_group_first,
                a_history_is_told_oldest_first,
                pages_of_a_history_follow_each_other,
            }
            departures {
                old_events_leave_and_a_snapshot_stands_for_them,
                whatever_has_left_every_row_is_the_fold_of_its_events,
                a_check_in_parts_tells_of_no_row_that_is_right,
                what_leaves_is_all_that_there_was,
                the_last_event_of_a_row_stays_and_how_far_it_had_come_is_known,
                what_somebody_else_looked_through_leaves_once,
                a_history_with_a_gap_stays,
                dead_letters_that_are_over_leave_and_are_counted_for_ever,
                a_dead_letter_that_is_taken_up_again_stays,
            }
            upkeep {
                every_row_equals_the_fold_of_its_events,
                a_kind_is_rebuilt_row_for_row,
                what_is_overridden_is_changed_by_one_at_a_time,
                a_kind_that_nobody_declared_cannot_be_rebuilt,
                the_machinery_counts_what_waits,
                finished_things_are_trimmed_by_age_in_chunks,
                old_marks_are_trimmed_wherever_they_stand,
            }
        }
    };
    ($name:ident, $open:path, $($module:ident { $($promise:ident,)+ })+) => {
        mod $name {
            $($(
                #[tokio::test]
                async fn $promise() -> Result<(), saga_engine::store::StoreFault> {
                    let database = $open().await;
                    super::$module::$promise(&database.store).await
                }
            )+)+
        }
    };
}

conformance!(on_sqlite_in_a_file, super::sqlite_in_a_file);
conformance!(on_sqlite_in_memory, super::sqlite_in_memory);
conformance!(on_postgres, super::on_a_server);
