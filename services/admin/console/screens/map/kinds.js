// Kinds of faults that can be injected, in plain words, and where. What they are is declared in Rust (FaultKind, the bank's FAULTS).
import { stepsOf } from './topology.js';

/**
 * @typedef {{ kind: string, name: string, effect: string, ofBank?: boolean, takesStep?: boolean, needsDelay?: boolean, endsProcess?: boolean }} Kind
 *   takesStep: may be limited to one step; endsProcess: nothing but a supervisor or an operator starts the process again
 */

/** @type {Kind[]} */
export const KINDS = [
  { kind: 'pause', name: 'Pause', effect: 'takes no messages; they wait at the broker until the fault ends', takesStep: true },
  { kind: 'delay', name: 'Slow down', effect: 'takes longer for each attempt', takesStep: true, needsDelay: true },
  { kind: 'fail_transiently', name: 'Fail, worth another try', effect: 'fails for the moment; the message is retried, the breaker may open', takesStep: true },
  { kind: 'fail_permanently', name: 'Fail for good', effect: 'fails for good; each message that is struck becomes a dead letter at once', takesStep: true },
  { kind: 'publish_twice', name: 'Publish twice', effect: 'publishes each message twice; consumers have to recognize the duplicates' },
  { kind: 'publish_garbage', name: 'Publish garbage', effect: 'publishes unreadable messages beside the real ones; consumers dead-letter them' },
  { kind: 'crash_before_ack', name: 'Crash unacknowledged', effect: 'ends after a commit, before it acknowledges; the message comes again', endsProcess: true },
  { kind: 'crash_after_publish', name: 'Crash after a publish', effect: 'ends before it settles an outbox entry; it publishes again', endsProcess: true },
  { kind: 'crash', name: 'Crash at a message', effect: 'ends before it commits a message, the same one after each start', takesStep: true, endsProcess: true },
  { kind: 'bank_error', name: 'Answer with errors', effect: 'answers 503 and does nothing', ofBank: true },
  { kind: 'bank_latency', name: 'Answer late', effect: 'answers each call later', ofBank: true, needsDelay: true },
  { kind: 'bank_hang', name: 'Never answer', effect: 'accepts calls and never answers', ofBank: true },
  { kind: 'bank_decline', name: 'Decline charges', effect: 'declines charges; these orders are cancelled', ofBank: true },
  { kind: 'bank_lose_answer', name: 'Lose the answer', effect: 'does what it is asked and answers 500; payment has to find out', ofBank: true },
  { kind: 'bank_refuse_refund', name: 'Refuse refunds', effect: 'rejects refunds; compensations wait or are dead-lettered', ofBank: true },
];

/** Limits of the API. */
export const MOST_OCCASIONS = 1_000_000, MOST_DELAY_MS = 600_000;

/** @param {string} kind */
export const kindNamed = (kind) => KINDS.find((one) => one.kind === kind);

/** Kinds at a service, or at one of its steps. @param {string} service @param {string} [step] */
export const kindsAt = (service, step) => KINDS.filter((one) => (service === 'bank' ? one.ofBank : !one.ofBank && (!step || one.takesStep)));

/**
 * One sentence about a fault.
 * @param {{ service: string, kind: string, step?: string | null, probability?: number | null, next?: number | null, delay_ms?: number | null }} fault
 */
export function describe({ service, kind, step, probability, next, delay_ms: delay }) {
  const known = kindNamed(kind);
  const place = step ?? (known?.takesStep && stepsOf(service).length > 0 ? `every step of ${service}` : `${service}`);
  const often = probability && probability < 100 ? `, ${probability} % of the time` : '';
  const limit = next ? `, ${next === 1 ? 'once' : `${next} times`} more` : '';
  return `${place} ${known?.effect ?? kind}${delay ? ` (${delay} ms)` : ''}${often}${limit}`;
}
