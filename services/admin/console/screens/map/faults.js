// Injected faults: what runs, and its end.
import { operator, remove, session } from '../../lib/api.js';
import { counted, messageOf } from '../../lib/format.js';
import { html, useState } from '../../lib/html.js';
import { overview } from '../../lib/live.js';
import { address, Link } from '../../lib/router.js';
import { Action, confirmChange, Countdown, Failure, tell } from '../../lib/ui.js';
import { endFault } from './end.js';
import { describe } from './kinds.js';
import { schedule, stopSchedule } from './schedule_run.js';

/** @typedef {import('../../types.js').Schemas['AllFaults']} AllFaults @typedef {import('../../types.js').Schemas['ServiceFault']} ServiceFault */

/** @param {{ cleared: number, unreachable: string[] }} answer */
function tellCleared({ cleared, unreachable }) {
  const rest = unreachable.length > 0 ? `. Nobody answers, and faults may go on, at ${unreachable.join(', ')}` : '';
  tell(`${counted(cleared, 'fault')} ended${rest}`, { isBad: rest !== '' });
}

/** Makes a change at one click, unless the name of the operator is missing. @param {{ title: string, effect: string, run: () => Promise<unknown> }} change */
async function atOneClick({ title, effect, run }) {
  if (session.value?.requires_operator && !operator.value) {
    confirmChange({ title, effect: html`<p>${effect}</p>`, label: title, run });
    return;
  }
  try {
    await run();
  } catch (problem) {
    tell(`${title}: ${messageOf(problem)}`, { isBad: true });
  }
}

/** Ends all faults at one click, and the schedule that would inject more. */
const endAll = () => atOneClick({
  title: 'End all faults', effect: 'Every injected fault of every service and the bank ends, and the schedule stops.',
  run: async () => {
    await stopSchedule({ endsFault: false });
    tellCleared(await remove('/api/admin/faults'));
  },
});

/** Running faults, for the frame of every screen: nothing without any. */
export function RunningFaults() {
  const faults = (overview.value?.services ?? []).flatMap((one) => (one.faults ?? []).map((fault) => ({ service: one.service, ...fault })));
  const running = schedule.value?.isRunning ? schedule.value : null;
  if (faults.length === 0 && !running) return null;
  const done = running?.faults.filter((one) => one.progress !== 'planned').length ?? 0;
  return html`<div class="running-faults" role="status">
    <span><b>${faults.length > 0 ? `${counted(faults.length, 'injected fault')}: ` : 'No fault is active now'}</b>
      ${faults.slice(0, 3).map((one) => `${one.kind} at ${one.step ?? one.service}`).join(', ')}
      ${faults.length > 3 ? ` and ${faults.length - 3} more` : ''}${running && ` · schedule: ${done} of ${running.faults.length}`}</span>
    <${Link} href=${address('/map', { faults: true })}>Show<//>
    <${Action} needs="admin" onClick=${endAll}>End all faults<//>
  </div>`;
}

/** @param {{ fault: ServiceFault, reload: () => void }} properties */
function FaultRow({ fault, reload }) {
  const end = () => atOneClick({ title: 'Clear', effect: `${describe(fault)}: this ends.`, run: () => endFault(fault).then(reload) });
  return html`<li>
    <span>${describe(fault)}.<br /><small>
      ${fault.service} · ${fault.kind} · struck ${counted(fault.hits, 'time')}${fault.until ? html` · ends in <${Countdown} at=${fault.until} />` : ''}</small>
      </span>
    <${Action} needs="admin" onClick=${end}>Clear<//>
  </li>`;
}

/** @param {{ data: AllFaults | null, problem: unknown, reload: () => void }} properties */
export function FaultList({ data, problem, reload }) {
  const [isEnding, setEnding] = useState(false);
  const clear = async () => { setEnding(true); await endAll(); reload(); setEnding(false); };
  return html`<${Failure} problem=${problem} />
    ${data && data.unreachable.length > 0 && html`<p
      class="warn">Unknown where nobody answers: ${data.unreachable.join(', ')}. Faults without an end apply again after the start.</p>`}
    ${data && data.faults.length === 0 && html`<p class="quiet">No fault is injected. Open an arrow or a service to break something there.</p>`}
    ${data && data.faults.length > 0 && html`
      <ul class="fault-list">${data.faults.map((fault) => html`<${FaultRow} key=${`${fault.service} ${fault.id}`} fault=${fault} reload=${reload} />`)}</ul>
      <p><${Action} needs="admin" kind="danger" off=${isEnding ? 'they are being ended' : ''} onClick=${clear}>Clear all faults<//></p>`}`;
}
