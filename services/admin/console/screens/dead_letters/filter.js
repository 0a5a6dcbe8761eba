// The filter of dead letters: in the address, in requests, in words, and as a form.
import { get } from '../../lib/api.js';
import { html, useEffect, useId, useRef } from '../../lib/html.js';
import { overview } from '../../lib/live.js';
import { address, go, Link, route } from '../../lib/router.js';

/** Statuses, with the choice `open` of the console. @typedef {{ status: string, fields: Record<string, string>, cursor: string }} View */

/** Members of a filter, by their names in the address and the API. @type {Record<string, string>} */
const FIELDS = {
  fingerprint: 'Cause', service: 'Service', step: 'Step', type: 'Type of message', saga: 'Order',
  failed_after: 'Failed from', failed_before: 'Failed before', text: 'Text in the error or type',
};

export const ANY = 'ANY';
const OPEN = 'PENDING,REPLAYING';
/** @type {[string, string][]} */
const STATUSES = [
  ['', 'open: pending or replaying'], ['PENDING', 'pending'], ['REPLAYING', 'replaying'], ['RESOLVED', 'resolved'], ['DISCARDED', 'discarded'],
  ['RESOLVED_MANUALLY', 'resolved manually'], [ANY, 'any'],
];

/** What the address shows. @returns {View} */
export function viewOf() {
  const { query } = route.value;
  /** @type {Record<string, string>} */
  const fields = {};
  for (const name of Object.keys(FIELDS)) if (query.get(name)) fields[name] = /** @type {string} */ (query.get(name));
  return { status: query.get('status') ?? '', fields, cursor: query.get('cursor') ?? '' };
}

/** Statuses to ask for; empty for any. @param {View} view */
export const statusesOf = ({ status }) => (status === ANY ? '' : status || OPEN);

/** Address of the list. @param {View} view @param {Record<string, string>} [more] */
export const listAddress = ({ status, fields }, more = {}) => address('/dead-letters', { ...fields, status, ...more });

/** Address of the wizard for a filter. @param {Record<string, string>} fields */
export const wizardAddress = (fields) => address('/dead-letters', { ...fields, wizard: '1' });

/** Whether the view has more than a status. @param {View} view */
export const isNarrow = (view) => Object.keys(view.fields).length > 0;

/** The filter in words. @param {Record<string, string>} fields */
export const filterInWords = (fields) => Object.entries(fields)
  .map(([name, value]) => `${(FIELDS[name] ?? name).toLowerCase()} ${value}`).join(', ') || 'all dead letters';

/** Most dead letters that are counted one by one. */
const MOST_COUNTED = 1_000;

/**
 * Counts what a filter matches. The API gives no number for a text, so that up to 1000 are counted here.
 * @param {Record<string, string>} fields @param {string[]} statuses
 * @returns {Promise<{ count: number, isMore: boolean }>}
 */
export async function countMatching(fields, statuses) {
  const status = statuses.join(',');
  let count = 0, cursor = '';
  while (count < MOST_COUNTED) {
    const page = await get(address('/api/admin/dlq', { ...fields, status, limit: fields.text ? 200 : 1, cursor }));
    if (page.total !== undefined) return { count: page.total, isMore: false };
    count += page.dead_letters.length;
    if (!page.next) return { count, isMore: false };
    cursor = page.next;
  }
  return { count, isMore: true };
}

/** The filter as a form. Choices apply at once, texts with Enter. @param {{ view: View }} properties */
export function FilterForm({ view }) {
  const id = useId();
  const form = useRef(/** @type {HTMLFormElement | null} */ (null));
  // Shows the filter of the address again, also where something else was typed.
  useEffect(() => form.current?.reset(), [JSON.stringify(view)]);
  const services = (overview.value?.services ?? []).map((one) => one.service);
  const steps = [...new Set((overview.value?.services ?? []).flatMap((one) => (one.steps ?? []).map((step) => step.step)))].sort();
  const apply = (/** @type {Event} */ event) => {
    event.preventDefault();
    if (!form.current?.reportValidity()) return;
    const values = /** @type {Record<string, string>} */ (Object.fromEntries(new FormData(form.current)));
    for (const name of ['failed_after', 'failed_before']) if (values[name]) values[name] = new Date(values[name]).toISOString();
    for (const name of Object.keys(values)) values[name] = values[name].trim();
    go(address('/dead-letters', values));
  };
  const isMoreOpen = ['type', 'saga', 'failed_after', 'failed_before'].some((name) => view.fields[name]);
  /** @type {(value: string, label: string, chosen?: string) => any} */
  const option = (value, label, chosen) => html`<option key=${value} value=${value} defaultSelected=${value === chosen}>${label}</option>`;
  const text = (/** @type {string} */ name, /** @type {Record<string, any>} */ more = {}) => html`<div><label for=${id + name}>${FIELDS[name]}</label>
    <input id=${id + name} name=${name} defaultValue=${view.fields[name] ?? ''} maxlength="200" spellcheck="false" autocomplete="off" ...${more} /></div>`;
  const time = (/** @type {string} */ name) => html`<div><label for=${id + name}>${FIELDS[name]}</label>
    <input id=${id + name} name=${name} type="datetime-local" step="1" defaultValue=${localTime(view.fields[name])} /></div>`;
  return html`<form class="filter" ref=${form} onSubmit=${apply} aria-label="Filter of dead letters">
    <div class="row">
      ${text('text', { type: 'search' })}
      <div><label for=${`${id}status`}>Status</label>
        <select id=${`${id}status`} name="status"
          onChange=${apply}>${STATUSES.map(([value, label]) => option(value, label, view.status))}</select></div>
      <div><label for=${`${id}service`}>Service</label><select id=${`${id}service`} name="service" onChange=${apply}>
        <option value="">any</option>${[...new Set([...services, view.fields.service ?? ''])].filter(Boolean).map((name) => option(name, name, view.fields.service))}</select></div>
      ${text('step', { list: `${id}steps` })}<datalist id=${`${id}steps`}>${steps.map((step) => html`<option key=${step} value=${step} />`)}</datalist>
      <button>Filter</button>
      ${(isNarrow(view) || view.status) && html`<${Link} class="button" href="/dead-letters">Clear<//>`}
    </div>
    <details open=${isMoreOpen}><summary>More filters</summary><div class="row">
      ${text('fingerprint')}${text('type')}${text('saga', { pattern: '[0-9a-fA-F-]{36}', title: 'The id of an order, 36 characters' })}
      ${time('failed_after')}${time('failed_before')}
    </div></details>
  </form>`;
}

/** Time for an input of this browser's zone. @param {string | undefined} at */
function localTime(at) {
  const time = at ? new Date(at) : null;
  if (!time || Number.isNaN(time.getTime())) return '';
  return new Date(time.getTime() - time.getTimezoneOffset() * 60_000).toISOString().slice(0, 19);
}
