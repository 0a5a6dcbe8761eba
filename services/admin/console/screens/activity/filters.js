// Activity: what the time line is filtered by. The filter is the address.
import { html, useId, useRef } from '../../lib/html.js';
import { address, go, Link } from '../../lib/router.js';
import { SYSTEM_KINDS } from './sources.js';
import { ACTIONS } from './words.js';

/** @typedef {import('./sources.js').View} View */

/** Changes by their group. @type {Map<string, [string, string][]>} */
const GROUPS = new Map();
for (const [action, [group, name]] of Object.entries(ACTIONS)) GROUPS.set(group, [...(GROUPS.get(group) ?? []), [action, name]]);

/** A time as the field for it takes it, in the viewer's zone; and back. @param {string} at */
function toField(at) {
  const time = new Date(at);
  return Number.isNaN(time.getTime()) ? '' : new Date(time.getTime() - 60_000 * time.getTimezoneOffset()).toISOString().slice(0, 16);
}
/** @param {string} field */
const toTime = (field) => (field ? new Date(field).toISOString() : '');

/** @param {{ view: View, people: string[] }} properties */
export function Filters({ view, people }) {
  const id = useId();
  const form = useRef(/** @type {HTMLFormElement | null} */ (null));
  const apply = (/** @type {Event} */ event) => {
    event.preventDefault();
    const values = /** @type {Record<string, string>} */ (Object.fromEntries(new FormData(/** @type {HTMLFormElement} */ (form.current))));
    const { operator, target, kind, text } = values;
    const times = { since: toTime(values.since), until: toTime(values.until) };
    go(address('/activity', { operator: operator.trim(), target: target.trim(), kind, text: text.trim(), ...times }));
  };
  const isFiltered = Object.values({ ...view, cursor: '', before: '' }).some(Boolean);
  return html`<form class="activity-filters" ref=${form} onSubmit=${apply} role="search" aria-label="Filter the time line">
    <div><label for=${`${id}o`}>Person</label>
      <input id=${`${id}o`} name="operator" value=${view.operator} list=${`${id}p`} maxlength="100" autocomplete="off" />
      <datalist id=${`${id}p`}>${[...new Set([...people, 'system'])].map((name) => html`<option key=${name} value=${name} />`)}</datalist></div>
    <div class="wide"><label for=${`${id}t`}>Order, dead letter, redrive, service…</label>
      <input id=${`${id}t`} name="target" value=${view.target} maxlength="200" autocomplete="off" spellcheck="false" /></div>
    <div><label for=${`${id}k`}>Kind</label><select id=${`${id}k`} name="kind" onChange=${apply}>
      <option value="" selected=${!view.kind}>everything</option>
      <option value="people" selected=${view.kind === 'people'}>changes (audit log)</option>
      <option value="system" selected=${view.kind === 'system'}>what the system did</option>
      <optgroup label="System">
        ${Object.entries(SYSTEM_KINDS).map(([kind, name]) => html`
          <option key=${kind} value=${kind} selected=${view.kind === kind}>${name}</option>`)}</optgroup>
      ${[...GROUPS].map(([group, actions]) => html`<optgroup key=${group} label=${group}>${actions.map(([action, name]) => html`
        <option key=${action} value=${action} selected=${view.kind === action}>${group}: ${name}</option>`)}</optgroup>`)}
    </select></div>
    <div><label for=${`${id}x`}>Text</label><input id=${`${id}x`} name="text" value=${view.text} maxlength="200" autocomplete="off" /></div>
    <div><label for=${`${id}f`}>From</label><input id=${`${id}f`} name="since" type="datetime-local" value=${toField(view.since)} /></div>
    <div><label for=${`${id}u`}>Before</label><input id=${`${id}u`} name="until" type="datetime-local" value=${toField(view.until)} /></div>
    <div class="buttons"><button>Filter</button>${isFiltered && html`<${Link} href="/activity">Show everything<//>`}</div>
  </form>`;
}
