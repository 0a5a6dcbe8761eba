// Dead letters in words.
import { html } from '../../lib/html.js';
import { Countdown } from '../../lib/ui.js';

/** @typedef {import('../../types.js').DeadLetterItem} DeadLetterItem */

/** Statuses of sagas whose order was cancelled. */
const CANCELLED = ['TIMED_OUT', 'COMPENSATING', 'COMPENSATED'];

/** Whether a replay would still change anything. @param {{ letter: DeadLetterItem, isLong?: boolean }} properties */
export function ReplayValue({ letter, isLong = false }) {
  const { effect, replay_value: value } = letter;
  if (effect) {
    if (effect.kind === 'took_effect') return html`<span>${isLong ? 'The replay took effect.' : 'the replay took effect'}</span>`;
    if (effect.kind === 'changed_nothing') return html`<span>${isLong ? 'The replay changed nothing.' : 'the replay changed nothing'}</span>`;
    return html`<span>${isLong ? 'The replay was rejected' : 'rejected'}${effect.reason ? `: ${effect.reason}` : ''}</span>`;
  }
  if (!value) return html`<span class="quiet">–</span>`;
  if (!value.awaited) return html`<span class="quiet">${isLong ? `${LATE[lateness(letter)]} A replay changes nothing.` : lateness(letter)}</span>`;
  if (value.until) return html`<span>${isLong ? 'The order waits for it, and is cancelled in ' : 'awaited, '}<${Countdown} at=${value.until} /></span>`;
  if (value.saga_status === 'COMPENSATION_STUCK') return html`<span>${isLong ? 'A compensation waits for it, without a deadline.' : 'compensation waits'}</span>`;
  return html`<span>${isLong ? 'It is awaited, without a deadline.' : 'awaited, no deadline'}</span>`;
}

/** Why nobody waits for a dead letter, in short and in full. */
const LATE = {
  'foreign, not awaited': 'It is a message from outside this system, and nobody waits for it.',
  'too late: confirmed': 'It is too late: the order was confirmed all the same.',
  'too late: cancelled': 'It is too late: the order was cancelled.',
  'resolved manually': 'It is not needed: the saga was resolved manually.',
  'too late: deadline passed': 'It is too late: the deadline has passed, and the order is being cancelled.',
  'not awaited': 'Its saga waits for it no longer.',
};

/** @param {DeadLetterItem} letter @returns {keyof typeof LATE} */
function lateness({ origin, replay_value: value }) {
  const status = value?.saga_status;
  if (origin === 'foreign') return 'foreign, not awaited';
  if (status === 'COMPLETED') return 'too late: confirmed';
  if (status && CANCELLED.includes(status)) return 'too late: cancelled';
  if (status === 'RESOLVED_MANUALLY') return 'resolved manually';
  return status === 'DEAD_LETTERED' ? 'too late: deadline passed' : 'not awaited';
}

/** Number of failed replays after which a replay needs force. */
export const MAX_REPLAYS = 3;

/** @param {DeadLetterItem} letter */
export const needsForce = (letter) => letter.replays >= MAX_REPLAYS || letter.status === 'REPLAYING';
