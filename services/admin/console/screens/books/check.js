// Books: a reconciliation that runs, and the last report. It goes on while its operator looks at other screens.
import { get, Problem } from '../../lib/api.js';
import { counted, duration, messageOf } from '../../lib/format.js';
import { html, signal, useId } from '../../lib/html.js';
import { now, overview } from '../../lib/live.js';
import { address, go, route } from '../../lib/router.js';

/**
 * @typedef {{ full: boolean, wait: number, startedAt: number, abort: AbortController }} Running
 * @typedef {{ report: import('../../types.js').Schemas['Report'] | null, isRunning: Running | null, problem: unknown, tookMs: number | null }} Check
 */

/** @type {import('../../vendor/signals.js').Signal<Check>} */
export const check = signal({ report: null, isRunning: null, problem: null, tookMs: null });

/** Seconds that an operator may give work in flight to end. Admin waits for half of its time limit and reads in the other. */
const WAITS = [0, 10, 20, 30];
const DEFAULT_WAIT = 10;
/** Seconds after which admin answers at the latest, without a wait and after a full verification. */
const ANSWERS_WITHIN = 10, FULL_WITHIN = 600;

/** @returns {number} */
function waitOf() {
  const given = Number(route.value.query.get('wait') ?? DEFAULT_WAIT);
  return WAITS.includes(given) ? given : DEFAULT_WAIT;
}

/** @param {{ full: boolean }} options */
export async function startCheck({ full }) {
  const abort = new AbortController(), wait = waitOf(), startedAt = Date.now();
  check.value.isRunning?.abort.abort();
  check.value = { ...check.value, isRunning: { full, wait, startedAt, abort }, problem: null };
  try {
    const report = await get(address('/api/admin/reconciliation', { wait: wait || null, full }), abort.signal);
    if (!abort.signal.aborted) check.value = { report, isRunning: null, problem: null, tookMs: Date.now() - startedAt };
  } catch (problem) {
    if (!abort.signal.aborted) check.value = { ...check.value, isRunning: null, problem: inWords(problem) };
  }
}

/** @param {unknown} problem */
const inWords = (problem) => new Problem(0, `The check has failed: ${messageOf(problem)}. What is shown is of an earlier one.`);

function cancelCheck() {
  check.value.isRunning?.abort.abort();
  check.value = { ...check.value, isRunning: null };
}

/** What a check that runs does, for how long, and until when. */
export function CheckProgress() {
  const running = check.value.isRunning;
  const id = useId();
  if (!running) return null;
  const seconds = Math.max(0, (now.value - running.startedAt) / 1000);
  const limit = running.full ? FULL_WITHIN + running.wait : Math.max(running.wait, ANSWERS_WITHIN);
  const inFlight = (overview.value?.services ?? []).find((one) => typeof one.in_flight === 'number')?.in_flight ?? 0;
  const isWaiting = seconds < running.wait / 2 && inFlight > 0;
  const { tookMs } = check.value;
  const what = running.full ? 'Reading everything' : 'Reading changes since the last checkpoint';
  const waiting = isWaiting ? `Up to ${running.wait / 2} s for ${counted(inFlight, 'order')} in flight to end. ` : '';
  return html`<label for=${id}>${what}: <b>${duration(1000 * Math.floor(seconds))}</b>${tookMs !== null && ` (the last check took ${duration(tookMs)})`}</label>
    <progress id=${id} max=${running.full ? null : limit} value=${running.full ? null : Math.min(limit, seconds)}></progress>
    <button type="button" onClick=${cancelCheck}>Cancel</button>
    <p class="quiet">${waiting}Admin answers within ${duration(limit * 1000)}. Orders go on meanwhile.</p>`;
}

export function CheckStart() {
  const id = useId();
  const choose = (/** @type {Event} */ event) => {
    const query = Object.fromEntries(route.value.query);
    go(address('/books', { ...query, wait: /** @type {HTMLSelectElement} */ (event.currentTarget).value }), { replace: true });
  };
  const about = 'Also finds rows that were changed without an event. May take ten minutes on a large system';
  return html`<button type="button" class="primary" onClick=${() => startCheck({ full: false })} title="Reads what changed since the last checkpoint">
      Check now</button>
    <button type="button" onClick=${() => startCheck({ full: true })} title=${about}>Check everything</button>
    <label for=${id}>Time limit for work in flight</label>
    <select id=${id} onChange=${choose}>${WAITS.map((wait) => html`
      <option key=${wait} value=${wait} selected=${wait === waitOf()}>${wait === 0 ? 'none: judge as it is' : `${wait / 2} s`}</option>`)}</select>`;
}
