//! Shell: spans of the inputs of one batch.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::time::Duration;

use saga_core::input::{CommandOutcome, DueOutcome, Input, InputKind, MessageOutcome, Outcome};
use saga_core::service::Service;
use saga_core::trace::TraceContext;

use super::span_operation::{InputSpan, SpanOperation};
use super::tracer::{OpenSpan, SpanDetails, Tracer};

/// Records the spans of a committed batch.
pub(super) struct BatchSpans<'a> {
    tracer: &'a Tracer,
    batch: Option<OpenSpan>,
    /// Ids of spans that wrote an outbox entry of a recorded trace.
    publishing: BTreeSet<u64>,
}

impl<'a> BatchSpans<'a> {
    /// Records the batch itself if it has several recorded inputs.
    pub(super) fn begin<S: Service>(
        tracer: &'a Tracer,
        inputs: &[Input<S>],
        publishing: BTreeSet<u64>,
        took: Duration,
    ) -> Self {
        let recorded: Vec<TraceContext> = match tracer.is_on() {
            true => inputs.iter().filter_map(|input| input.trace).filter(|trace| trace.is_sampled).collect(),
            false => vec![],
        };
        let batch = tracer.begin_batch(&recorded);
        if let Some(batch) = batch {
            let operation = SpanOperation::Commit { inputs: inputs.len() };
            tracer.end(batch, took, || SpanDetails { operation, failed: None, links: recorded });
        }
        Self { tracer, batch, publishing }
    }

    /// Records the span of an input that is processed.
    pub(super) fn end<S: Service>(
        &self,
        input: &Input<S>,
        outcome: &Outcome<S>,
        span: Option<OpenSpan>,
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
        self.tracer.end(span, took, || SpanDetails {
            operation: SpanOperation::Process(input_span(input, outcome)),
            failed: failed.map(str::to_owned),
            links: self.batch.filter(|_| context.is_sampled).map(|batch| batch.context).into_iter().collect(),
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
    }
}

/// Reason of a technical failure. A rejection by the business is no failure.
fn failure<S: Service>(outcome: &Outcome<S>) -> Option<&str> {
    match outcome {
        Outcome::Message(MessageOutcome::Retried(why) | MessageOutcome::Dead(why)) => Some(why),
        // The reason may hold secrets that a collector must not see. The log has it.
        Outcome::Command(CommandOutcome::Faulted(_)) | Outcome::Due(DueOutcome::Faulted(_)) => {
            Some("faulted")
        }
        Outcome::Command(_) | Outcome::Message(_) | Outcome::Due(_) => None,
    }
}
