// What each service has stored of an order: its stock by product, and the events of each record.
import { inWords, number } from '../../lib/format.js';
import { html, useState } from '../../lib/html.js';
import { Panel, Time } from '../../lib/ui.js';

/** @typedef {import('../../types.js').Schemas['ServiceRecord']} ServiceRecord @typedef {import('../../types.js').Schemas['RecordedEvent']} RecordedEvent
 * @typedef {{ sku: string, quantity: number }} Line */

/** Products that inventory keeps for the order, or has sold. @param {{ records: ServiceRecord[] }} properties */
export function Stock({ records }) {
  const inventory = records.find((one) => one.service === 'inventory');
  const ordered = /** @type {Line[]} */ (records.find((one) => one.service === 'order')?.state?.lines ?? []);
  const lines = /** @type {Line[]} */ (inventory?.state?.lines ?? []);
  const skus = [...new Set([...ordered, ...lines].map((line) => line.sku))];
  const of = (/** @type {Line[]} */ all, /** @type {string} */ sku) => number(all.find((line) => line.sku === sku)?.quantity);
  const status = inventory?.state ? inWords(String(inventory.state.status)) : inventory?.problem ? 'unknown' : 'nothing yet';
  return html`<${Panel} title="Stock">
    <p>Inventory says: <b>${status}</b></p>
    ${skus.length > 0 && html`<table><thead><tr><th>Product</th><th class="right">Ordered</th><th class="right">${inventory?.state ? status : 'reserved'}</th></tr></thead>
      <tbody>${skus.map((sku) => html`<tr key=${sku}><th scope="row">${sku}</th><td class="right">${of(ordered, sku)}</td><td class="right">${of(lines, sku)}</td></tr>`)}</tbody></table>`}
  <//>`;
}

/** @param {{ records: ServiceRecord[] }} properties */
export function Records({ records }) {
  return html`<${Panel} title="Records of the services">${records.map((one) => html`<${Record} key=${one.service} record=${one} />`)}<//>`;
}

/** @param {{ record: ServiceRecord }} properties */
function Record({ record: { service, state, events, problem } }) {
  return html`<h3>${service}</h3>
    ${problem && html`<p class="warn">${problem}</p>`}
    ${!problem && !state && html`<p class="quiet">It has no record of this order.</p>`}
    ${events.length > 0 && html`<div class="scroll"><table class="moments"><thead><tr><th>Time</th><th>Event</th><th>Data</th></tr></thead>
      <tbody>${events.map((event, index) => html`<${EventRow} key=${index} event=${event} />`)}</tbody></table></div>`}
    ${state && html`<details><summary>State now</summary><pre class="raw">${JSON.stringify(state, null, 2)}</pre></details>`}`;
}

/** @param {{ event: RecordedEvent }} properties */
function EventRow({ event }) {
  const [isOpen, setOpen] = useState(false);
  return html`<tr><td><${Time} at=${event.at} exact /></td><th scope="row">${event.event}</th>
      <td><button type="button" class="plain" aria-expanded=${isOpen} aria-label=${`${event.event} as JSON`} onClick=${() => setOpen(!isOpen)}>JSON</button></td></tr>
    ${isOpen && html`<tr><td colspan="3"><pre class="raw">${JSON.stringify(event.data, null, 2)}</pre></td></tr>`}`;
}
