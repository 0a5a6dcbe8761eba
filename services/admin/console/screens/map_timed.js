// Faults that end after a while. The API has no expiry, so this page ends them, and has to stay open until then.
import { headers, post, Problem, remove } from '../lib/api.js';
import { signal } from '../lib/html.js';
import { tell } from '../lib/ui.js';

/** @typedef {import('../types.js').Schemas['ServiceFault']} ServiceFault @typedef {import('../types.js').Schemas['InjectFault']} InjectFault */
/** @typedef {{ service: string, id: number, until: number, timer: ReturnType<typeof setTimeout> }} Timed until: by this browser's clock */

/** Milliseconds until the end of a fault is tried again at a service that does not answer. */
const RETRY = 5_000;

/** @type {import('../vendor/signals.js').Signal<Timed[]>} */
export const timed = signal([]);

/** @param {{ service: string, id: number }} fault */
const pathOf = ({ service, id }) => `/api/admin/faults/${service}/${id}`;

/** @param {{ service: string, id: number }} fault */
function forget({ service, id }) {
  timed.value = timed.value.filter((one) => {
    const isIt = one.service === service && one.id === id;
    if (isIt) clearTimeout(one.timer);
    return !isIt;
  });
}

/** Ends that are asked for and not answered. @type {Map<string, Promise<void>>} */
const ending = new Map();

/** Ends one fault. A fault that has ended already is no problem. @param {{ service: string, id: number }} fault @returns {Promise<void>} */
export function endFault(fault) {
  const path = pathOf(fault), asked = ending.get(path);
  if (asked) return asked;
  const end = remove(path).catch((problem) => {
    if (!(problem instanceof Problem && problem.status === 404)) throw problem;
  }).then(() => forget(fault)).finally(() => ending.delete(path));
  ending.set(path, end);
  return end;
}

/** @param {{ service: string, id: number }} fault @param {number} ms */
function endLater({ service, id }, ms) {
  forget({ service, id });
  const end = () => endFault({ service, id }).catch((problem) => {
    tell(`Fault ${id} of ${service} could not be ended yet: ${problem.message}`, { isBad: true });
    endLater({ service, id }, RETRY);
  });
  timed.value = [...timed.value, { service, id, until: Date.now() + ms, timer: setTimeout(end, ms) }];
}

/**
 * Injects a fault, which this page ends after so many seconds; 0 for never.
 * @param {InjectFault} fault @param {number} seconds @returns {Promise<ServiceFault>}
 */
export async function injectFor(fault, seconds) {
  const active = await post('/api/admin/faults', fault);
  if (seconds > 0) endLater(active, seconds * 1000);
  return active;
}

/** Ends all faults of all services. @returns {Promise<{ cleared: number, unreachable: string[] }>} */
export async function endAllFaults() {
  const answer = await remove('/api/admin/faults');
  // At services that do not answer, the end is tried again.
  for (const one of timed.value) if (!answer.unreachable.includes(one.service)) forget(one);
  return answer;
}

// The page is left: what it would have ended, it ends now.
addEventListener('pagehide', () => {
  for (const one of timed.value) fetch(pathOf(one), { method: 'DELETE', headers: headers(), keepalive: true });
});
