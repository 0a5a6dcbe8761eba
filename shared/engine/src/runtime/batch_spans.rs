//! Shell: spans of the inputs of one batch.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::time::Duration;

use saga_core::decision::ReplayTrace;
use saga_core::input::{CommandOutcome, DueOutcome, Input, InputKind, MessageOutcome, Outcome};
use saga_core::service::Service;
use uuid::Uuid;

use super::after_commit::AfterCommit;
use super::span_operation::{InputSpan, SpanOperation};
use super::tracer::{OpenSpan, SpanDetails, SpanFailure, Tracer, Transaction};

/// Records the spans of a committed batch.
pub(super) struct BatchSpans<'a> {
    tracer: &'a Tracer,
    /// Transaction of the batch; `None` if nothing was stored.
    transaction: Option<Transaction>,
    /// Ids of spans that wrote an outbox entry of a recorded trace.
    publishing: BTreeSet<u64>,
    /// Reasons of the failures that inputs report.
    failure_reasons: Vec<(Uuid, &'static str)>,
    /// Earlier attempts of replayed inputs.
    replays: Vec<(Uuid, ReplayTrace)>,
}

impl<'a> BatchSpans<'a> {
    pub(super) fn new<S: Service>(
        tracer: &'a Tracer,
        after_commit: &mut AfterCommit<S>,
        inputs: usize,
    ) -> Self {
        let AfterCommit { took, publishing_spans, failure_reasons, replays, .. } = after_commit;
        Self {
            tracer,
            transaction: (!took.is_zero()).then_some(Transaction { inputs, took: *took }),
            publishing: std::mem::take(publishing_spans),
            failure_reasons: std::mem::take(failure_reasons),
            replays: std::mem::take(replays),
        }
    }

    /// Records the span of an input that is processed. `correlation_id` replaces the input's own.
    pub(super) fn end<S: Service>(
        &self,
        input: &Input<S>,
        outcome: &Outcome<S>,
        (span, correlation_id): (Option<OpenSpan>, Option<Uuid>),
        took: Duration,
    ) {
        // A queued task asks again and again whether it is still needed: those spans would hide all others.
        let is_check = matches!(outcome, Outcome::Message(MessageOutcome::TaskNeeded));
        let Some(span) = span.filter(|_| !is_check) else { return };
        let (failed, context) = (failure(outcome), span.context);
        // An unsampled input that publishes into a recorded trace reports a failure, so its own trace is kept too.
        if !context.is_sampled && (failed.is_some() || self.publishing.contains(&context.span_id)) {
            self.tracer.keep(context);
        }
        self.tracer.end(span, took, || {
            let mut processed = input_span(input, outcome);
            processed.correlation_id = correlation_id.unwrap_or(processed.correlation_id);
            let caused = self.failure_reasons.iter().find(|(by, _)| *by == input.id);
            processed.failure_reason = caused.map(|(_, reason)| *reason).or(processed.failure_reason);
            let replay = self.replays.iter().find(|(by, _)| *by == input.id).map(|(_, replay)| replay);
            let before = replay.map_or(0, |replay| replay.attempts);
            processed.attempt = processed.attempt.map(|attempt| attempt.saturating_add(before));
            SpanDetails {
                operation: SpanOperation::Process(processed),
                failed: failed.map(|description| SpanFailure {
                    error_type: outcome.name().into(),
                    description: description.to_owned(),
                }),
                links: replay.map(|replay| replay.links.clone()).unwrap_or_default(),
                transaction: self.transaction,
            }
        });
    }
}

fn input_span<S: Service>(input: &Input<S>, outcome: &Outcome<S>) -> InputSpan {
    let delivered = match &input.kind {
        InputKind::Message(delivered) => Some(delivered),
        InputKind::Command { .. } | InputKind::TaskResult { .. } | InputKind::Due { .. } => None,
    };
    let source = match delivered {
        Some(delivered) => Cow::Borrowed(delivered.step.name),
        None => input.source().to_owned().into(),
    };
    let delivery = delivered.and_then(|delivered| delivered.delivery.as_ref());
    InputSpan {
        source,
        is_message: delivered.is_some(),
        correlation_id: input.correlation_id,
        message_id: input.id,
        outcome: outcome.name(),
        attempt: input.attempt(),
        subject: delivery.map(|delivery| delivery.subject.as_str().into()),
        dead_letter: input.replayed(),
        failure_reason: input.failure_reason(),
    }
}

/// Reason of a technical failure. A rejection by the business is no failure.
fn failure<S: Service>(outcome: &Outcome<S>) -> Option<&str> {
    match outcome {
        Outcome::Message(MessageOutcome::Retried(why) | MessageOutcome::Dead(why)) => Some(why),
        // The reason may hold secrets that a collector must not see. The log has it.
        Outcome::Command(CommandOutcome::Faulted(_)) | Outcome::Due(DueOutcome::Faulted(_)) => Some(""),
        Outcome::Command(_) | Outcome::Message(_) | Outcome::Due(_) => None,
    }
}
