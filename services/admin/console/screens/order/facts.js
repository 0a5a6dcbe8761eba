// The facts of an order as a table, which says what the diagram draws.
import { clock } from '../../lib/format.js';
import { html, useState } from '../../lib/html.js';
import { Link } from '../../lib/router.js';
import { Id, Time } from '../../lib/ui.js';
import { withTimes } from './story.js';

/** @typedef {import('./story.js').Moment} Moment */

/** What caused a fact: another fact of the order, or an input of its service. @param {Moment} moment @param {Moment[]} moments */
function cause(moment, moments) {
  if (!moment.fact) return '';
  const { causation_id: id } = moment.fact, fact = moments.find((one) => one.fact?.message_id === id);
  return fact ? html`<a href=${`#fact-${id}`} title=${id}>${fact.fact?.type}</a>` : html`<${Id} id=${id} />`;
}

/** What a row is that is no fact. @type {Partial<Record<Moment['kind'], string>>} */
const KINDS = { operator: 'operator', call: 'call', customer: 'customer' };

/** @param {{ id: string, moments: Moment[], raw: unknown }} properties */
export function Facts({ id, moments, raw }) {
  return html`
    <div class="scroll"><table id=${id} class="moments">
      <thead><tr><th>Time</th><th>Service</th><th>Type</th><th>Note</th><th>Message id</th><th>Caused by</th><th>Raw</th></tr></thead>
      <tbody>${moments.map((moment) => html`<${FactRow} key=${moment.key} moment=${moment} moments=${moments} />`)}</tbody>
    </table></div>
    <${Raw} label="Everything as JSON" value=${raw} />`;
}

/** @param {{ moment: Moment, moments: Moment[] }} properties */
function FactRow({ moment, moments }) {
  const [isOpen, setOpen] = useState(false);
  const { at, from, to, fact, name, note, kind, deadLetter } = moment;
  const toggle = () => setOpen(!isOpen);
  return html`<tr id=${fact ? `fact-${fact.message_id}` : undefined} class=${fact ? '' : 'beside'}>
      <td><${Time} at=${at} exact /></td>
      <td>${from}${!fact && to.length > 0 && ` → ${to.join(', ')}`}</td>
      <th scope="row">${fact?.type ?? name}${!fact && KINDS[kind] && html` <small>${KINDS[kind]}</small>`}</th>
      <td>${withTimes(note, (time) => clock(time, Date.parse(at)))}${deadLetter && html` <${Link} href=${`/dead-letters/${deadLetter}`}>dead letter<//>`}</td>
      <td>${fact && html`<${Id} id=${fact.message_id} />`}</td>
      <td>${cause(moment, moments)}</td>
      <td>${fact && html`<button type="button" class="plain" aria-expanded=${isOpen} aria-label=${`${fact.type} as JSON`} onClick=${toggle}>JSON</button>`}</td>
    </tr>
    ${isOpen && html`<tr><td colspan="7"><pre class="raw">${JSON.stringify(fact, null, 2)}</pre></td></tr>`}`;
}

/** JSON that is formatted only once it is opened. @param {{ label: string, value: unknown }} properties */
function Raw({ label, value }) {
  const [isOpen, setOpen] = useState(false);
  return html`<details onToggle=${(/** @type {Event} */ event) => setOpen(/** @type {HTMLDetailsElement} */ (event.currentTarget).open)}>
    <summary>${label}</summary>${isOpen && html`<pre class="raw">${JSON.stringify(value, null, 2)}</pre>`}</details>`;
}
