// The form of a schedule: settings, the planned sequence, and how far it is.
import { countdown, counted } from '../../lib/format.js';
import { html, useId, useMemo } from '../../lib/html.js';
import { now } from '../../lib/live.js';
import { address, go, route } from '../../lib/router.js';
import { Action, confirmChange, tell } from '../../lib/ui.js';
import { faultsOff } from './inject.js';
import { describe } from './kinds.js';
import { LIMITS, plan } from './schedule.js';
import { schedule, startSchedule, stopSchedule } from './schedule_run.js';

/** @typedef {import('./schedule_run.js').ScheduledFault} ScheduledFault @typedef {import('./schedule.js').PlannedFault} PlannedFault */

const DEFAULTS = { every: 30, minutes: 5, seed: 1 };
/** @type {Record<string, string>} */
const LABELS = { every: 'Every (s)', minutes: 'For (min)', seed: 'Seed' };

/** Number of the address within its limits; by default that of the newest schedule. @param {'every' | 'minutes' | 'seed'} name */
function numberInAddress(name) {
  const [least, most] = LIMITS[name], text = route.value.query.get(name), value = Math.round(Number(text));
  return !text || Number.isNaN(value) ? (schedule.value ?? DEFAULTS)[name] : Math.min(most, Math.max(least, value));
}

/** @param {string} name @param {string} value */
const setInAddress = (name, value) => go(address('/map', { ...Object.fromEntries(route.value.query), [name]: value }), { replace: true });

const stop = () => stopSchedule().then(
  () => tell('The schedule is stopped, and its faults are ended'),
  (problem) => tell(`The schedule is stopped, but a fault is not ended: ${problem.message}`, { isBad: true }),
);

export function ScheduleForm() {
  const id = useId(), running = schedule.value?.isRunning ? schedule.value : null;
  const every = numberInAddress('every'), minutes = numberInAddress('minutes'), seed = numberInAddress('seed');
  const crashes = route.value.query.get('crashes'), withCrashes = crashes === null ? schedule.value?.withCrashes === true : crashes === 'true';
  const planned = useMemo(() => plan(seed, { every, minutes, withCrashes }), [seed, every, minutes, withCrashes]);
  const off = faultsOff('admin') || (planned.length === 0 ? 'no fault fits into this time' : '');
  const start = () => confirmChange({
    title: 'Break something, again and again', label: 'Start', kind: 'danger',
    effect: html`<p>${counted(planned.length, 'fault')} in ${counted(minutes, 'minute')}: one every ${every} s, each ended before the next. Seed ${seed}.</p>
      <p>This page injects and ends them: keep it open and in view. The schedule stops when the page is closed or reloaded, and ends what it has injected.</p>
      ${withCrashes && html`<p class="warn">Some of them end a process. Unless something starts it again, its service stays down.</p>`}`,
    run: async () => startSchedule(seed, { every, minutes, withCrashes }),
    done: () => 'The schedule has started',
  });
  const shown = schedule.value && (schedule.value.isRunning || isSamePlan(schedule.value.faults, planned)) ? schedule.value : null;
  return html`
    ${!running && html`<form class="schedule" onSubmit=${(/** @type {Event} */ event) => event.preventDefault()}>
      <div class="fields">
        ${/** @type {const} */ (['every', 'minutes', 'seed']).map((name) => html`<div key=${name}><label for=${`${id}${name}`}>${LABELS[name]}</label>
          <input id=${`${id}${name}`} type="number" min=${LIMITS[name][0]} max=${LIMITS[name][1]} required value=${{ every, minutes, seed }[name]}
            onChange=${(/** @type {Event} */ event) => setInAddress(name, /** @type {HTMLInputElement} */ (event.currentTarget).value)} /></div>`)}
        <label class="check"><input type="checkbox" checked=${withCrashes}
          onChange=${(/** @type {Event} */ event) => setInAddress('crashes', String(/** @type {HTMLInputElement} */ (event.currentTarget).checked))} />
          also end processes</label>
        <${Action} needs="admin" off=${off} kind="danger" onClick=${start}>Start…<//>
      </div>
      <p class="quiet">The same seed and settings give the same sequence. The schedule runs in this page, and stops with it.</p>
    </form>`}
    ${running && html`<p class="actions">
      <b>Seed ${running.seed}: ${running.faults.filter((one) => one.progress !== 'planned').length} of ${running.faults.length},
        ${' '}${countdown(running.startedAt + running.minutes * 60_000 - now.value) || '0:00'} left</b>
      <${Action} needs="admin" onClick=${stop}>Stop<//><span class="quiet">It stops when this page is closed or reloaded.</span></p>`}
    <${Sequence} faults=${shown ? shown.faults : planned} startedAt=${shown ? shown.startedAt : null} />`;
}

/** @param {PlannedFault[]} one @param {PlannedFault[]} other */
const isSamePlan = (one, other) => one.length === other.length
  && one.every((fault, index) => describe(fault) === describe(other[index]) && fault.at === other[index].at);

/** @param {{ faults: (PlannedFault & Partial<ScheduledFault>)[], startedAt: number | null }} properties */
function Sequence({ faults, startedAt }) {
  const next = startedAt === null ? -1 : faults.findIndex((one) => one.progress === 'planned');
  return html`<div class="scroll sequence"><table>
    <thead><tr><th class="right">After</th><th class="right">For</th><th>What breaks</th><th>State</th></tr></thead>
    <tbody>${faults.map((one, index) => html`<tr key=${one.at} class=${one.progress === 'active' ? 'active' : ''}>
      <td class="right">${countdown(one.at * 1000) || '0:00'}</td><td class="right">${one.next ? html`<span class="quiet">once</span>` : `${one.seconds} s`}
        </td><td>${describe(one)} <small>${one.kind}</small></td>
      <td>${progressText(one, index === next && startedAt !== null && schedule.value?.isRunning ? startedAt : null)}</td></tr>`)}</tbody>
  </table></div>`;
}

/** @param {Partial<ScheduledFault> & { at: number }} fault @param {number | null} startedAt of the schedule, for its next fault */
function progressText({ progress = 'planned', problem, at }, startedAt) {
  if (startedAt !== null) return `in ${countdown(startedAt + at * 1000 - now.value)}`;
  return problem ? html`<span class="warn">${progress}: ${problem}</span>` : progress;
}
