// The map as a list, for narrow screens and for who prefers to read.
import { html } from '../../lib/html.js';
import { Link } from '../../lib/router.js';
import { Status } from '../../lib/ui.js';
import { arrowText, isSame, mapAddress, noteText, selection, serviceLines } from './figures.js';
import { arrowState, callState, serviceState } from './state.js';
import { BANK_CALL, SERVICES, stepsOf } from './topology.js';

/** @typedef {import('./state.js').ArrowState} ArrowState @typedef {import('./figures.js').Selection} Selection */

/** @type {Record<string, string>} */
const STATUS = { ready: 'ok', degraded: 'degraded', down: 'down', unknown: 'unknown' };

/** Link that opens the side panel. @param {{ to: Selection, children: any }} properties */
function Open({ to, children }) {
  const isSelected = isSame(to, selection());
  return html`<${Link} href=${mapAddress(isSelected ? null : to)} aria-current=${isSelected ? 'true' : null} data-at=${`${to.kind}=${to.name}`}>${children}
    <//>`;
}

/** @param {{ to: Selection, name: string, from: string, arrow: ArrowState }} properties */
const ArrowItem = ({ to, name, from, arrow }) => html`<li class=${arrow.tone}>
  <i class=${`light ${arrow.tone === 'unknown' ? 'neutral' : arrow.tone}`}></i><${Open} to=${to}>${name}<//> <small>${from}</small>
  <div>${arrowText(arrow)}${arrow.notes.map((note) => html` <span key=${note.text} class=${`note ${note.tone}`}>${noteText(note)}</span>`)}</div>
</li>`;

/** @param {{ overview: import('./state.js').Overview }} properties */
export const MapList = ({ overview }) => html`<div class="map-list">${SERVICES.map(({ name }) => {
  const service = serviceState(overview, name);
  return html`<section key=${name} class="panel" aria-label=${name}>
    <h2><${Open} to=${{ kind: 'service', name }}>${name}<//> <${Status} status=${STATUS[service.state]} /></h2>
    <p class="quiet">${serviceLines(service).join(' · ')}${service.notes.map((note) => html` <span key=${note.text} class=${`note ${note.tone}`}>
      ${noteText(note)}</span>`)}</p>
    <ul>
      ${stepsOf(name).map((step) => html`<${ArrowItem} key=${step.step} to=${{ kind: 'step', name: step.step }} name=${step.step}
        from=${`from ${step.from.join(', ')}`} arrow=${arrowState(overview, step)} />`)}
      ${name === BANK_CALL.owner && html`<${ArrowItem} to=${{ kind: 'call', name: BANK_CALL.name }} name="calls of the bank" from="to bank"
        arrow=${callState(overview)} />`}
    </ul>
  </section>`;
})}</div>`;
