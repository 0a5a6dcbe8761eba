// The map: services, the steps between them, what is wrong where, and breaking things on purpose.
import { get } from '../../lib/api.js';
import { counted } from '../../lib/format.js';
import { html, signal, useEffect } from '../../lib/html.js';
import { overview } from '../../lib/live.js';
import { address, Link, route } from '../../lib/router.js';
import { Panel, useLoaded } from '../../lib/ui.js';
import { Drawing } from './drawing.js';
import { FaultList } from './faults.js';
import { selection } from './figures.js';
import { MapList } from './list.js';
import { SidePanel } from './panel.js';
import { ScheduleForm } from './schedule_form.js';
import { schedule } from './schedule_run.js';
import { serviceState } from './state.js';
import { SERVICES } from './topology.js';

/** Below this width the drawing would be too small to read. */
const narrow = matchMedia('(max-width: 63.99rem)');
const isNarrow = signal(narrow.matches);
narrow.addEventListener('change', () => { isNarrow.value = narrow.matches; });

/** @typedef {import('../../types.js').Schemas['AllFaults']} AllFaults */

export function SystemMap() {
  const state = overview.value, selected = selection(), { query } = route.value;
  const faults = useLoaded('map faults', (abort) => /** @type {Promise<AllFaults>} */ (get('/api/admin/faults', abort)), 3_000);
  useEffect(() => { if (query.has('faults') && state) document.getElementById('faults')?.scrollIntoView(); }, [query.has('faults'), state === null]);
  if (!state) return html`<h1>Waiting for admin…</h1>`;
  const isList = isNarrow.value || query.get('view') === 'list';
  return html`
    <header class="map-head"><h1>Map</h1><p>${sentence(state)}</p>${!isNarrow.value && html`<${ViewLink} isList=${isList} />`}</header>
    <div class=${`map-and-panel ${selected ? 'open' : ''}`}>
      <div class="map-holder">${isList ? html`<${MapList} overview=${state} />` : html`<${Drawing} overview=${state} />`}
        <p class="quiet">Each arrow is a step: it takes messages of one service to another.
          Below its name: messages that wait, orders that wait for it, how long it takes (p50 / p99). Grey and dashed is unknown.</p>
        <${Breaking} faults=${faults} />
      </div>
      ${selected && html`<${SidePanel} overview=${state} selected=${selected} disabled=${faults.data?.disabled ?? []} reloadFaults=${faults.reload} />`}
    </div>`;
}

/** @param {{ faults: { data: AllFaults | null, problem: unknown, reload: () => void } }} properties */
function Breaking({ faults }) {
  const { query } = route.value;
  return html`<div id="faults" class="columns">
    <${Panel} title="Injected faults"><${FaultList} ...${faults} /><//>
    <${Panel} title="Break something again and again"><details
      open=${['every', 'minutes', 'seed'].some((name) => query.has(name)) || schedule.value !== null}>
      <summary>A schedule, with a seed</summary><${ScheduleForm} /></details><//>
  </div>`;
}

/** State of the services in one sentence. @param {import('./state.js').Overview} state */
function sentence(state) {
  const states = SERVICES.map(({ name }) => serviceState(state, name));
  const named = (/** @type {string} */ which) => states.filter((one) => one.state === which).map((one) => one.name);
  const parts = ['down', 'degraded', 'unknown'].flatMap((which) => (named(which).length > 0 ? [`${which}: ${named(which).join(', ')}`] : []));
  return parts.length > 0 ? parts.join('; ') : `All ${counted(SERVICES.length, 'service')} are ready.`;
}

/** @param {{ isList: boolean }} properties */
function ViewLink({ isList }) {
  const to = address('/map', { ...Object.fromEntries(route.value.query), view: isList ? null : 'list' });
  return html`<${Link} href=${to}>${isList ? 'As a drawing' : 'As a list'}<//>`;
}
