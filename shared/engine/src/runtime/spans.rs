//! Shell: the spans of what goes through the engine in one batch.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::time::Duration;

use saga_core::input::{CommandOutcome, DueOutcome, Input, InputKind, MessageOutcome, Outcome};
use saga_core::service::Service;
use saga_core::trace::TraceContext;

use super::operation::{Operation, Settled};
use super::tracer::{OpenSpan, SpanDetails, Tracer};

/// What is to be written down of the inputs of one batch, that is committed.
pub(super) struct Spans<'a> {
    tracer: &'a Tracer,
    batch: Option<OpenSpan>,
    /// Spans that promise something of a trace that is recorded.
    promising: BTreeSet<u64>,
}

impl<'a> Spans<'a> {
    /// Writes down the batch itself, when it has several inputs that are recorded.
    pub(super) fn of_a_batch<S: Service>(
        tracer: &'a Tracer,
        inputs: &[Input<S>],
        promising: BTreeSet<u64>,
        took: Duration,
    ) -> Self {
        let recorded: Vec<TraceContext> = match tracer.is_on() {
            true => inputs.iter().filter_map(|input| input.trace).filter(|trace| trace.is_sampled).collect(),
            false => vec![],
        };
        let batch = tracer.begin_batch(&recorded);
        if let Some(batch) = batch {
            let operation = Operation::Commit { inputs: inputs.len() };
            tracer.end(batch, took, || SpanDetails { operation, failed: None, links: recorded });
        }
        Self { tracer, batch, promising }
    }

    /// Writes down an input that is settled.
    pub(super) fn end<S: Service>(
        &self,
        input: &Input<S>,
        outcome: &Outcome<S>,
        begun: Option<OpenSpan>,
        took: Duration,
    ) {
        // Whether a call is still wanted is asked again and again while it waits: there would be nothing else to see.
        let is_asked = matches!(outcome, Outcome::Message(MessageOutcome::TaskNeeded));
        let Some(begun) = begun.filter(|_| !is_asked) else { return };
        let (failed, context) = (failure(outcome), begun.context);
        // One that was not to be recorded promises what is: it tells of something that went wrong.
        if !context.is_sampled && (failed.is_some() || self.promising.contains(&context.span_id)) {
            self.tracer.keep(context);
        }
        self.tracer.end(begun, took, || SpanDetails {
            operation: Operation::Settle(settled(input, outcome)),
            failed: failed.map(str::to_owned),
            links: self.batch.filter(|_| context.is_sampled).map(|batch| batch.context).into_iter().collect(),
        });
    }
}

fn settled<S: Service>(input: &Input<S>, outcome: &Outcome<S>) -> Settled {
    let delivered = match &input.kind {
        InputKind::Message(delivered) => Some(delivered),
        InputKind::Command { .. } | InputKind::TaskResult { .. } | InputKind::Due { .. } => None,
    };
    let source = match delivered {
        Some(delivered) => Cow::Borrowed(delivered.step.name),
        None => input.source().to_owned().into(),
    };
    let delivery = delivered.and_then(|delivered| delivered.delivery.as_ref());
    Settled {
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
