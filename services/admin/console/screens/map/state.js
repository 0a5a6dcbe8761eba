// Pure: state of the services and of the arrows between them, from the overview.
import { counted, inWords } from '../../lib/format.js';
import { kindNamed } from './kinds.js';
import { BANK_CALL } from './topology.js';

/**
 * @typedef {import('../../types.js').Overview} Overview @typedef {import('../../types.js').ServiceStatus} ServiceStatus
 * @typedef {import('./topology.js').Step} Step
 * @typedef {'good' | 'warn' | 'bad' | 'unknown'} Tone
 * @typedef {{ text: string, tone: Tone, since?: string }} Note
 * @typedef {{ name: string, tone: Tone, state: 'ready' | 'degraded' | 'down' | 'unknown', status?: ServiceStatus, notes: Note[] }} ServiceState
 * @typedef {import('../../types.js').Schemas['StepDuration']} Took
 * @typedef {{ tone: Tone, waiting: number | null, what: string, orders: number | null, took?: Took, breaker: string | null, notes: Note[] }} ArrowState
 *   waiting: messages at the broker, or open calls; null while unknown; breaker: its state; null while unknown
 */

/** @param {Overview} overview @param {string} name @returns {ServiceState} */
export function serviceState(overview, name) {
  const status = overview.services.find((one) => one.service === name);
  if (!status) return { name, tone: 'unknown', state: 'unknown', notes: [] };
  const state = !status.ready ? 'down' : status.degraded ? 'degraded' : 'ready';
  /** @type {Note[]} */
  const notes = status.problem ? [] : (status.failing_checks ?? []).map((one) => ({ text: one.check.replaceAll('_', ' '), tone: one.failed ? 'bad' : 'warn' }));
  if (status.problem) notes.push({ text: 'does not answer', tone: 'bad' });
  if (status.outbox && status.outbox.failed > 0) notes.push({ text: `${counted(status.outbox.failed, 'entry', 'entries')} rejected`, tone: 'bad' });
  for (const fault of status.faults ?? []) if (!kindNamed(fault.kind)?.takesStep) notes.push({ text: `fault: ${fault.kind}`, tone: 'warn' });
  return { name, state, status, notes, tone: state === 'down' ? 'bad' : state === 'degraded' || notes.length > 0 ? 'warn' : 'good' };
}

/** States of a breaker, by how bad they are for the flow. @type {Record<string, Tone>} */
const BREAKER_TONES = { OPEN: 'bad', FORCED_OPEN: 'bad', HALF_OPEN: 'warn', FORCED_CLOSED: 'warn' };

/** State of a breaker; null if its service does not answer. @param {ServiceStatus | undefined} status @param {string} name */
function breakerOf(status, name) {
  if (!status || status.problem) return null;
  return (status.breakers ?? []).find((one) => one.name === name)?.state ?? 'CLOSED';
}

/** @param {string | null} state @param {string} [of] @returns {Note[]} */
function breakerNotes(state, of = 'breaker') {
  const tone = state === null ? undefined : BREAKER_TONES[state];
  return tone && state ? [{ text: `${of} ${inWords(state)}`, tone }] : [];
}

/** @param {Note[]} notes @param {boolean} isKnown @returns {Tone} */
function worst(notes, isKnown) {
  if (notes.some((one) => one.tone === 'bad')) return 'bad';
  if (notes.some((one) => one.tone === 'warn')) return 'warn';
  return isKnown ? 'good' : 'unknown';
}

/** @param {Overview} overview @param {Step} step @returns {ArrowState} */
export function arrowState(overview, step) {
  const status = overview.services.find((one) => one.service === step.owner);
  const at = status?.steps?.find((one) => one.step === step.step);
  const waiting = at?.waiting ?? null, breaker = breakerOf(status, step.step);
  /** @type {Note[]} */
  const notes = [];
  if (at?.stalled_since) notes.push({ text: 'stalled', tone: 'bad', since: at.stalled_since });
  if (at?.paused) notes.push({ text: 'paused', tone: 'warn' });
  notes.push(...breakerNotes(breaker));
  if (step.needs) notes.push(...breakerNotes(breakerOf(status, step.needs), `${step.needs} breaker`));
  for (const { kind, step: only } of status?.faults ?? []) {
    const strikes = only ? only === step.step : kindNamed(kind)?.takesStep;
    if (strikes && !(kind === 'pause' && at?.paused)) notes.push({ text: `fault: ${kind}`, tone: 'warn' });
  }
  const orders = step.isOfSaga && overview.sagas ? overview.sagas.waiting?.[step.step] ?? 0 : null;
  const took = overview.sagas?.steps?.find((one) => one.step === step.step);
  return { tone: worst(notes, waiting !== null), waiting, what: 'waiting', orders, took, breaker, notes };
}

/** The call of payment to the bank. @param {Overview} overview @returns {ArrowState} */
export function callState(overview) {
  const status = overview.services.find((one) => one.service === BANK_CALL.owner), bank = overview.services.find((one) => one.service === 'bank');
  const breaker = breakerOf(status, BANK_CALL.name), waiting = status?.tasks?.open ?? null;
  const notes = breakerNotes(breaker);
  if (bank && !bank.ready) notes.push({ text: 'bank down', tone: 'bad' });
  if (status?.bank_ledger?.rejected) notes.push({ text: 'ledger rejected', tone: 'bad' });
  for (const fault of bank?.faults ?? []) notes.push({ text: `fault: ${fault.kind}`, tone: 'warn' });
  return { tone: worst(notes, waiting !== null), waiting, what: 'open calls', orders: null, breaker, notes };
}
