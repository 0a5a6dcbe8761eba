//! Shell: the spans of what goes through the engine in one batch.

use std::collections::BTreeSet;
use std::time::Duration;

use saga_core::input::{CommandOutcome, DueOutcome, Input, InputKind, MessageOutcome, Outcome};
use saga_core::service::Service;
use saga_core::trace::TraceContext;

use super::tracer::{Begun, Span, SpanKind, Tracer};

/// What is to be written down of the inputs of one batch, that is committed.
pub(super) struct Spans<'a> {
    tracer: &'a Tracer,
    batch: Option<Begun>,
    troubled: BTreeSet<u64>,
}

impl<'a> Spans<'a> {
    /// Writes down the batch itself, when it has several inputs that are recorded.
    pub(super) fn of_a_batch<S: Service>(
        tracer: &'a Tracer,
        inputs: &[Input<S>],
        troubled: BTreeSet<u64>,
        took: Duration,
    ) -> Self {
        let recorded: Vec<TraceContext> = match tracer.is_on() {
            true => inputs.iter().filter_map(|input| input.trace).filter(|trace| trace.is_sampled).collect(),
            false => vec![],
        };
        let batch = tracer.begin_batch(&recorded);
        if let Some(batch) = batch {
            tracer.end(batch, took, SpanKind::Internal, |span| {
                span.name = "commit".into();
                span.attributes.push(("saga.batch.inputs", inputs.len().to_string()));
                span.links = recorded;
            });
        }
        Self { tracer, batch, troubled }
    }

    /// Writes down an input that is settled.
    pub(super) fn end<S: Service>(
        &self,
        input: &Input<S>,
        outcome: &Outcome<S>,
        begun: Option<Begun>,
        took: Duration,
    ) {
        // Whether a call is still wanted is asked again and again while it waits: there would be nothing else to see.
        let is_asked = matches!(outcome, Outcome::Message(MessageOutcome::Wanted));
        let Some(begun) = begun.filter(|_| !is_asked) else { return };
        let failed = failure(outcome);
        if failed.is_some() || self.troubled.contains(&begun.context.span_id) {
            self.tracer.keep(begun.context);
        }
        self.tracer.end(begun, took, kind(input), |span| describe(span, input, outcome, failed, self.batch));
    }
}

fn describe<S: Service>(
    span: &mut Span,
    input: &Input<S>,
    outcome: &Outcome<S>,
    failed: Option<&str>,
    batch: Option<Begun>,
) {
    span.name = input.source().to_owned().into();
    span.failed = failed.map(str::to_owned);
    span.attributes = vec![
        ("saga.correlation_id", input.correlation_id.to_string()),
        ("saga.message_id", input.id.to_string()),
        ("saga.outcome", outcome.name().to_owned()),
    ];
    if let Some(attempt) = input.attempt() {
        span.attributes.push(("saga.attempt", attempt.to_string()));
    }
    if let InputKind::Message(delivered) = &input.kind {
        span.attributes.push(("messaging.system", "nats".to_owned()));
        span.attributes.push(("messaging.operation.type", "process".to_owned()));
        let subject = delivered.delivery.as_ref().map(|delivery| delivery.subject.clone());
        span.attributes.extend(subject.map(|subject| ("messaging.destination.name", subject)));
    }
    if let Some(dead_letter) = input.replayed() {
        span.attributes.push(("saga.dead_letter_id", dead_letter.to_string()));
    }
    if span.context.is_sampled {
        span.links.extend(batch.map(|batch| batch.context));
    }
}

fn kind<S: Service>(input: &Input<S>) -> SpanKind {
    match input.kind {
        InputKind::Message(_) => SpanKind::Consumer,
        InputKind::Command { .. } | InputKind::Called { .. } | InputKind::Due { .. } => SpanKind::Internal,
    }
}

/// Why it failed; the business's no is no failure.
fn failure<S: Service>(outcome: &Outcome<S>) -> Option<&str> {
    match outcome {
        Outcome::Message(MessageOutcome::Retried(why) | MessageOutcome::Dead(why)) => Some(why),
        // Of these nobody has taken out yet what a collector is not to see: the log has why.
        Outcome::Command(CommandOutcome::Faulted(_)) | Outcome::Due(DueOutcome::Faulted(_)) => {
            Some("faulted")
        }
        Outcome::Command(_) | Outcome::Message(_) | Outcome::Due(_) => None,
    }
}
