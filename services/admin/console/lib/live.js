// The live stream of admin. One stream for each page; after an interruption it goes on with what was missed.
import { headers, session, signInReason } from './api.js';
import { batch, computed, signal } from './html.js';

/** @typedef {import('../types.js').Overview} Overview @typedef {import('../types.js').Rates} Rates */

/** Seconds of rates that charts show. */
const SECONDS = 600;
/** Milliseconds without any event after which the stream counts as dead. Admin sends one each second. */
const SILENCE = 5_000;
/** Milliseconds after which the overview counts as out of date. */
const OUTDATED = 6_000;

/** @type {import('../vendor/signals.js').Signal<Overview | null>} */
export const overview = signal(null);
/** @type {import('../vendor/signals.js').Signal<import('../types.js').Redrive[]>} */
export const redrives = signal([]);
/** Counts by second, oldest first. @type {import('../vendor/signals.js').Signal<import('../types.js').SecondCounts[]>} */
export const seconds = signal([]);
/** Newest event of the rates. @type {import('../vendor/signals.js').Signal<Rates | null>} */
export const rates = signal(null);
/** @type {import('../vendor/signals.js').Signal<'connecting' | 'live' | 'lost'>} */
export const connection = signal('connecting');
/** Time of this browser, each second. */
export const now = signal(Date.now());
/** Milliseconds by which admin's clock is ahead of this browser's. */
const ahead = signal(0);
/** Time by admin's clock, each second. */
export const serverNow = computed(() => now.value + ahead.value);
/** Time at which the overview was read, in milliseconds by admin's clock. Admin has read none yet after its start, which makes the last one no newer. */
export const readAt = signal(/** @type {number | null} */ (null));
/** True while admin cannot use the broker: it hears of no new orders and dead letters then. */
export const isBrokerAway = computed(() => overview.value !== null && overview.value.unconsumed === undefined);
/** Why what is shown may be wrong; empty if it is up to date. */
export const staleness = computed(() => {
  const age = readAt.value === null ? null : serverNow.value - readAt.value;
  if (connection.value === 'lost') return 'admin does not answer';
  return age !== null && age > OUTDATED ? 'admin answers slowly' : '';
});

setInterval(() => { now.value = Date.now(); }, 1000);

let lastId = '';

/** @param {string} name @param {string} data @param {string} id */
function receive(name, data, id) {
  if (id) lastId = id;
  const value = JSON.parse(data);
  batch(() => {
    connection.value = 'live';
    if (name === 'overview') overview.value = value;
    if (name === 'redrives') redrives.value = value;
    if (name === 'rates') {
      now.value = Date.now();
      ahead.value = Date.parse(value.at) - now.value;
      rates.value = value;
      if (value.overview_at) readAt.value = Date.parse(value.overview_at);
      if (value.seconds) seconds.value = [...seconds.value, ...value.seconds].slice(-SECONDS);
    }
  });
}

/** Passes each event of a stream on. @param {ReadableStream<BufferSource>} body @param {() => void} heard */
async function read(body, heard) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let text = '';
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    heard();
    text += value;
    const events = text.split('\n\n');
    text = events.pop() ?? '';
    for (const event of events) {
      /** @type {Record<string, string>} */
      const fields = {};
      for (const line of event.split('\n')) {
        const colon = line.indexOf(':');
        if (colon > 0) fields[line.slice(0, colon)] = (fields[line.slice(0, colon)] ?? '') + line.slice(colon + 1).trimStart();
      }
      if (fields.data) receive(fields.event ?? '', fields.data, fields.id ?? '');
    }
  }
}

/** Reads the stream once, until it ends, fails or falls silent. */
async function connect() {
  const abort = new AbortController();
  let timer = setTimeout(() => abort.abort(), SILENCE);
  const heard = () => {
    clearTimeout(timer);
    timer = setTimeout(() => abort.abort(), SILENCE);
  };
  try {
    const response = await fetch('/api/admin/live', { headers: headers(lastId ? { 'last-event-id': lastId } : {}), signal: abort.signal });
    if (response.status === 401) signInReason.value = (await response.json().catch(() => ({}))).detail ?? '';
    if (response.ok && response.body) await read(response.body, heard);
  } catch { /* connects again */ } finally {
    clearTimeout(timer);
    connection.value = 'lost';
  }
}

/** Follows the stream for as long as the page is open. */
export async function follow() {
  for (let pause = 500; ; pause = Math.min(2 * pause, 5_000)) {
    if (signInReason.value === null && session.value !== null) {
      const began = Date.now();
      await connect();
      if (Date.now() - began > SILENCE) pause = 250;
    } else {
      pause = 250;
    }
    await new Promise((resume) => setTimeout(resume, pause));
  }
}
