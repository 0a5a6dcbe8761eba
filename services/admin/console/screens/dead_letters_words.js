// Dead letters in words.
import { html } from '../lib/html.js';
import { Countdown } from '../lib/ui.js';

/** @typedef {import('../types.js').DeadLetterItem} DeadLetterItem */

/** Statuses of sagas whose order was cancelled. */
const CANCELLED = ['TIMED_OUT', 'COMPENSATING', 'COMPENSATED'];

/** Whether a replay would still change anything. @param {{ letter: DeadLetterItem, isLong?: boolean }} properties */
export function ReplayValue({ letter, isLong = false }) {
  const { effect, replay_value: value } = letter;
  if (effect) {
    if (effect.kind === 'took_effect') return html`<span>the replay took effect</span>`;
    if (effect.kind === 'changed_nothing') return html`<span>the replay changed nothing</span>`;
    return html`<span>rejected${effect.reason ? `: ${effect.reason}` : ''}</span>`;
  }
  if (!value) return html`<span class="quiet">–</span>`;
  if (!value.awaited) return html`<span class="quiet">${whyLate(letter)}${isLong && ' A replay changes nothing.'}</span>`;
  if (value.until) return html`<span>${isLong ? 'The order waits for it, and is cancelled in ' : 'awaited, '}<${Countdown} at=${value.until} /></span>`;
  if (value.saga_status === 'COMPENSATION_STUCK') return html`<span>${isLong ? 'The compensation of a cancelled order waits for it, without a deadline.' : 'compensation waits'}</span>`;
  return html`<span>${isLong ? 'It is awaited, without a deadline.' : 'awaited, no deadline'}</span>`;
}

/** @param {DeadLetterItem} letter */
function whyLate({ origin, replay_value: value }) {
  const status = value?.saga_status;
  if (origin === 'foreign') return 'A message from outside this system: nobody waits for it.';
  if (status === 'COMPLETED') return 'Too late: the order was confirmed all the same.';
  if (status && CANCELLED.includes(status)) return 'Too late: the order was cancelled.';
  if (status === 'RESOLVED_MANUALLY') return 'Not needed: the saga was resolved manually.';
  if (status === 'DEAD_LETTERED') return 'Too late: the deadline has passed, and the order is being cancelled.';
  return 'Too late: its saga waits for it no longer.';
}

/** Number of failed replays after which a replay needs force. */
export const MAX_REPLAYS = 3;

/** @param {DeadLetterItem} letter */
export const needsForce = (letter) => letter.replays >= MAX_REPLAYS || letter.status === 'REPLAYING';
