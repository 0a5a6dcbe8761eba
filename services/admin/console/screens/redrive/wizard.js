// The wizard of a redrive: more time, a look at what it would do, its limits, the reason, and the start.
import { denial, get, post, setOperator } from '../../lib/api.js';
import { counted, duration, messageOf, number } from '../../lib/format.js';
import { html, useId, useState } from '../../lib/html.js';
import { redrives, serverNow } from '../../lib/live.js';
import { address, go, Link } from '../../lib/router.js';
import { Action, Countdown, Failure, Id, Minutes, OrderLink, Panel, Status, tell, Time, useLoaded, useShown } from '../../lib/ui.js';
import { CHANGES, showOutcome } from '../dead_letters/changes.js';
import { filterInWords, isNarrow, listAddress } from '../dead_letters/filter.js';
import { OperatorField } from '../dead_letters/note.js';
import { ReplayValue } from '../dead_letters/words.js';
import { isOver } from './progress.js';

/** @typedef {import('../../types.js').Schemas['Preview']} Preview */

const REFRESH = 3_000, SAMPLES = 5;

/** @param {{ view: import('../dead_letters/filter.js').View }} properties */
export function RedriveWizard({ view }) {
  const { fields } = view;
  const [isForced, setForced] = useState(false);
  const key = JSON.stringify([fields, isForced]);
  const { data, problem, reload } = useLoaded(key, async () => {
    const [preview, page] = await Promise.all([
      post('/api/admin/dlq/redrive', { filter: fields, force: isForced, preview: true }),
      get(address('/api/admin/dlq', { ...fields, status: 'PENDING', limit: SAMPLES })),
    ]);
    return { preview: /** @type {Preview} */ (preview), samples: /** @type {import('../../types.js').DeadLetterItem[]} */ (page.dead_letters) };
  }, REFRESH);
  const back = html`<p><${Link} href=${listAddress(view)}>Back to the dead letters<//></p>`;
  if (!isNarrow(view)) return html`<h1>Redrive</h1>${back}<p>A redrive needs a cause, or another filter.</p>`;
  const running = redrives.value.find((one) => !isOver(one) && sameFilter(one.filter, fields));
  return html`<h1>Redrive</h1>${back}
    <p class="intro">Replays the pending dead letters of <b>${filterInWords(fields)}</b>: a few first, then the rest at a limited rate.
      It stops when the error comes back. Fix the cause before.</p>
    ${running && html`<p class="warn">A redrive of this filter is under way: <${Link} href=${`/redrives/${running.id}`}>open it<//> <${Status} status=${running.status} /></p>`}
    <${Failure} problem=${problem} />
    ${data ? html`<div class="wizard"><${MoreTime} fields=${fields} preview=${data.preview} changed=${reload} />
      <${Expectation} preview=${data.preview} samples=${data.samples} />
      <${Start} fields=${fields} preview=${data.preview} isForced=${isForced} setForced=${setForced} /></div>`
    : !problem && html`<p class="loading">Counting…</p>`}`;
}

/** @param {unknown} one @param {Record<string, string>} other */
const sameFilter = (one, other) => JSON.stringify(Object.entries(/** @type {object} */ (one)).sort()) === JSON.stringify(Object.entries(other).sort());

/** Time until a deadline, in a sentence. @param {{ at?: string }} properties */
const When = ({ at }) => (at && Date.parse(at) > serverNow.value ? html`in <${Countdown} at=${at} />` : html`now`);

/** Step 1: more time for the orders that wait. @param {{ fields: Record<string, string>, preview: Preview, changed: () => void }} properties */
function MoreTime({ fields, preview, changed }) {
  const id = useId();
  const [problem, setProblem] = useState(/** @type {unknown} */ (null));
  const [isRunning, setRunning] = useState(false);
  const submit = async (/** @type {SubmitEvent} */ event) => {
    event.preventDefault();
    const values = new FormData(/** @type {HTMLFormElement} */ (event.currentTarget));
    setRunning(true);
    setProblem(null);
    try {
      const reason = String(values.get('reason')).trim();
      tell(showOutcome(CHANGES.extend, await post(CHANGES.extend.path, { filter: fields, seconds: 60 * Number(values.get('minutes')), reason })));
      changed();
    } catch (error) {
      setProblem(error);
    } finally {
      setRunning(false);
    }
  };
  return html`<${Panel} title="1. Give the orders more time">
    ${preview.first_until ? html`<p>${counted(preview.awaited, 'dead letter')} ${preview.awaited === 1 ? 'is' : 'are'} awaited.
      The first order is cancelled <b><${When} at=${preview.first_until} /></b>, the last <${When} at=${preview.last_until} />.</p>
      <form class="inline" onSubmit=${submit}>
        <div><${Minutes} /></div>
        <div class="wide"><label for=${`${id}r`}>Reason of the extension</label>
          <input id=${`${id}r`} name="reason" maxlength="500" defaultValue="time to replay the dead letters" required autocomplete="off" /></div>
        ${denial('operator') ? html`<${Action} onClick=${() => {}}>Extend their deadlines<//>`
          : html`<button disabled=${isRunning}>${isRunning ? 'Working…' : 'Extend their deadlines'}</button>`}
      </form><${Failure} problem=${problem} />`
    : html`<p class="quiet">No order with a deadline waits for these dead letters, so that there is nothing to extend.</p>`}
  <//>`;
}

/** Step 2: what it would do. @param {{ preview: Preview, samples: import('../../types.js').DeadLetterItem[] }} properties */
function Expectation({ preview, samples }) {
  const { matching, replayable, awaited, ended, cancelled, confirmed, over_limit: overLimit, groups } = preview;
  return html`<${Panel} title="2. What it would do">
    <dl class="tiles">
      <div><dt>Pending that match</dt><dd>${number(matching)}</dd></div>
      <div><dt>Would be replayed</dt><dd>${number(replayable)}</dd></div>
      <div><dt>Awaited</dt><dd>${number(awaited)}</dd></div>
      <div><dt>Too late</dt><dd>${number(ended)} ${ended > 0 && html`<small>${number(cancelled)} cancelled, ${number(confirmed)} confirmed</small>`}</dd></div>
      <div><dt>Failed three replays</dt><dd>${number(overLimit)}</dd></div>
    </dl>
    ${ended > 0 && html`<p class="warn">A replay of ${ended === matching ? 'these changes nothing: nobody waits for them any more. Discard them instead.'
      : `the ${number(ended)} that are too late changes nothing. It does no harm.`}</p>`}
    ${groups.length > 1 && html`<h3>Causes</h3><ul class="counts">${groups.map((group) => html`<li key=${group.fingerprint}>
      <b>${number(group.count)}</b> ${group.step}: ${group.reason}</li>`)}</ul>`}
    ${samples.length > 0 && html`<h3>The latest ${samples.length > 1 ? number(samples.length) : ''}</h3><div class="scroll"><table>
      <thead><tr><th>Dead letter</th><th>Failed</th><th>Error</th><th>Order</th><th>Worth a replay?</th></tr></thead>
      <tbody>${samples.map((letter) => html`<tr key=${letter.id}><td><${Id} id=${letter.id} to=${`/dead-letters/${letter.id}`} /></td><td class="nowrap">
        <${Time} at=${letter.last_failed_at} /></td><td class="error" title=${letter.reason}><span>${letter.reason}</span></td>
        <td>${letter.saga ? html`<${OrderLink} id=${letter.saga} />` : '–'}</td><td><${ReplayValue} letter=${letter} /></td></tr>`)}</tbody></table></div>`}
  <//>`;
}

/** Size of the canary: 2 %, and more where some are too late, as a canary that changes nothing proves nothing. @param {Preview} preview */
export function sensibleCanary({ replayable, awaited, matching }) {
  const size = Math.min(20, Math.max(1, Math.ceil(replayable / 50)));
  const share = matching > 0 && awaited > 0 ? awaited / matching : 1;
  return Math.min(100, Math.max(1, replayable), Math.ceil(size / share));
}

const RATES = [50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000];

/** Replays per second: 50, or more where that would miss the next deadline. @param {Preview} preview @param {number} at */
export function sensibleRate({ replayable, first_until: until }, at) {
  const seconds = until ? Math.max(1, (Date.parse(until) - at) / 2000) : Infinity;
  return RATES.find((rate) => rate >= replayable / seconds) ?? 10_000;
}

/** @param {number} first */
function course(first) {
  if (first === 0) return 'All go without a trial,';
  const canary = first === 1 ? '1 dead letter goes first. Only when it is resolved' : `${number(first)} dead letters go first. Only when all of them are resolved`;
  return `${canary}, the rest follows`;
}

/**
 * Step 3: limits, reason, start.
 * @param {{ fields: Record<string, string>, preview: Preview, isForced: boolean, setForced: (isForced: boolean) => void }} properties
 */
function Start({ fields, preview, isForced, setForced }) {
  const id = useId();
  const [typed, setTyped] = useState(/** @type {{ canary?: string, rate?: string }} */ ({}));
  const limits = { canary: String(sensibleCanary(preview)), rate: String(sensibleRate(preview, serverNow.value)), ...typed };
  const [isRunning, setRunning] = useState(false);
  const [problem, setProblem] = useState(/** @type {unknown} */ (null));
  const isShown = useShown();
  const { replayable, first_until: until, over_limit: overLimit } = preview;
  const canary = Number(limits.canary), rate = Number(limits.rate);
  const takes = rate > 0 ? (replayable / rate) * 1000 : 0;
  const pace = rate > 0 ? ` at ${number(rate)} a second: about ${duration(Math.max(1000, takes))} in all.` : ' as fast as the services can.';
  const isTooSlow = until && serverNow.value + takes > Date.parse(until);
  /** @type {(name: 'canary' | 'rate') => (event: InputEvent) => void} */
  const change = (name) => (event) => setTyped({ ...typed, [name]: /** @type {HTMLInputElement} */ (event.currentTarget).value });
  const submit = async (/** @type {SubmitEvent} */ event) => {
    event.preventDefault();
    const values = new FormData(/** @type {HTMLFormElement} */ (event.currentTarget));
    if (values.get('operator')) setOperator(String(values.get('operator')));
    setRunning(true);
    setProblem(null);
    try {
      const reason = String(values.get('reason')).trim();
      const redrive = await post('/api/admin/dlq/redrive', { filter: fields, canary, ...(rate > 0 ? { rate } : {}), force: isForced, reason });
      if (isShown.current) go(`/redrives/${redrive.id}`, { replace: true });
      else tell(`The redrive of ${filterInWords(fields)} has started`);
    } catch (error) {
      if (!isShown.current) tell(`The redrive of ${filterInWords(fields)}: ${messageOf(error)}`, { isBad: true });
      setProblem(error);
      setRunning(false);
    }
  };
  const off = denial('operator') || (replayable === 0 ? 'nothing to replay' : '');
  const label = `Start: replay ${counted(replayable, 'dead letter')}`;
  return html`<${Panel} title="3. Limits, reason, start"><form onSubmit=${submit}>
    <div class="inline">
      <div><label for=${`${id}c`}>Canary: how many go first</label>
        <input id=${`${id}c`} type="number" min="0" max="100" required value=${limits.canary} onInput=${change('canary')} /></div>
      <div><label for=${`${id}s`}>Replays per second</label>
        <input id=${`${id}s`} type="number" min="1" max="10000" placeholder="no limit" value=${limits.rate} onInput=${change('rate')} /></div>
    </div>
    ${(overLimit > 0 || isForced) && (denial('admin')
      ? html`<p class="quiet">${counted(overLimit, 'dead letter')} failed three replays. Only an admin can force another.</p>`
    : html`<label class="check"><input type="checkbox" checked=${isForced}
      onChange=${() => setForced(!isForced)} /> Force: also replay the ${number(overLimit)} of which three replays have failed</label>`)}
    <p class=${canary > 0 ? '' : 'warn'}>${course(Math.min(canary, replayable))}${pace}</p>
    ${isTooSlow && html`<p class="warn">That is too slow for the next deadline, which is <${When} at=${until} />. Extend the deadlines, or raise the rate.</p>`}
    <${OperatorField} />
    <label for=${`${id}r`}>Reason</label>
      <input id=${`${id}r`} class="wide" name="reason" maxlength="500" required autocomplete="off" placeholder="What fixed the cause" />
    <${Failure} problem=${problem} />
    <footer>${off ? html`<${Action} kind="primary" off=${off} onClick=${() => {}}>${label}<//>`
      : html`<button class="primary" disabled=${isRunning}>${isRunning ? 'Starting…' : label}</button>`}</footer>
  </form><//>`;
}
