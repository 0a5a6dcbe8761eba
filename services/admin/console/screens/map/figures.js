// Texts and links that the drawing, the list and the side panel of the map share.
import { counted, duration, number } from '../../lib/format.js';
import { html } from '../../lib/html.js';
import { serverNow } from '../../lib/live.js';
import { address, go, route } from '../../lib/router.js';

/** @typedef {import('./state.js').ArrowState} ArrowState @typedef {import('./state.js').ServiceState} ServiceState */
/** @typedef {import('./state.js').Note} Note */
/** @typedef {{ kind: 'step' | 'service' | 'call', name: string }} Selection */

/** What is selected, by the address; null if nothing is. @returns {Selection | null} */
export function selection() {
  for (const kind of /** @type {const} */ (['step', 'service', 'call'])) {
    const name = route.value.query.get(kind);
    if (name) return { kind, name };
  }
  return null;
}

/** Address of the map with this selection; all else stays. @param {Selection | null} selected */
export function mapAddress(selected) {
  const { step: _, service: __, call: ___, faults: ____, ...rest } = Object.fromEntries(route.value.query);
  return address('/map', { ...rest, ...(selected && { [selected.kind]: selected.name }) });
}

/** @param {Selection} one @param {Selection | null} other */
export const isSame = (one, other) => one.kind === other?.kind && one.name === other.name;

/** @param {Note} note */
export const noteText = ({ text, since }) => (since ? `${text} ${duration(Math.max(0, serverNow.value - Date.parse(since)))}` : text);

/** Median and 99th percentile, with their unit once if it is the same. @param {{ p50_us: number, p99_us: number }} took */
function percentiles({ p50_us, p99_us }) {
  const [p50, p99] = [duration(p50_us / 1000), duration(p99_us / 1000)], unit = p99.split(' ').at(-1);
  return `${p50.endsWith(` ${unit}`) && p50.split(' ').length === 2 ? p50.split(' ')[0] : p50} / ${p99}`;
}

/** Messages that wait, orders that wait, median and 99th percentile. @param {ArrowState} arrow */
export function arrowText({ waiting, what, orders, took }) {
  const parts = [waiting === null ? 'unknown' : `${number(waiting)} ${what}`];
  if (orders) parts.push(counted(orders, 'order'));
  if (took) parts.push(percentiles(took));
  return parts.join(' · ');
}

/** Lines about the outbox and what waits inside of a service. @param {ServiceState} service */
export function serviceLines({ status }) {
  if (!status || status.problem) return ['outbox unknown'];
  const lines = [status.outbox ? `outbox ${number(status.outbox.pending)}` : 'outbox unknown'];
  if (status.outbox?.oldest) lines.push(`oldest ${duration(Math.max(0, serverNow.value - Date.parse(status.outbox.oldest)))}`);
  if (status.retries) lines.push(`${number(status.retries)} to retry`);
  if (status.in_flight !== undefined && status.in_flight !== null) lines.push(`${number(status.in_flight)} in flight`);
  return lines;
}

/**
 * Part of the drawing that opens the side panel. The links of the router are HTML's.
 * @param {{ to: Selection, label: string, class: string, children: any }} properties
 */
export function MapLink({ to, label, class: name, children }) {
  const isSelected = isSame(to, selection()), href = mapAddress(isSelected ? null : to);
  const follow = (/** @type {MouseEvent} */ event) => {
    if (event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    event.preventDefault();
    go(href);
  };
  return html`<a href=${href} class=${`${name} ${isSelected ? 'selected' : ''}`} aria-label=${label} aria-current=${isSelected ? 'true' : null}
    data-at=${`${to.kind}=${to.name}`} onClick=${follow}>${children}</a>`;
}
