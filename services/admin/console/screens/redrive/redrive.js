// A redrive: live progress, its controls, and whether all ledgers agree afterwards.
import { get, post } from '../../lib/api.js';
import { counted, duration, isUuid, number } from '../../lib/format.js';
import { html, useState } from '../../lib/html.js';
import { connection, redrives, serverNow } from '../../lib/live.js';
import { address, Link } from '../../lib/router.js';
import { Action, Command, confirmChange, Failure, Id, isNotFound, Panel, Since, Status, Time, useLoaded } from '../../lib/ui.js';
import { filterInWords } from '../dead_letters/filter.js';
import { canaryText, isOver, partsOf, ProgressBar, whatItDid } from './progress.js';

/** @typedef {import('../../types.js').Redrive} Redrive */

const REFRESH = 2_000;

/** The redrive as the live stream has it, or as it was read. @param {string} id */
function useRedrive(id) {
  const live = connection.value === 'live' ? redrives.value.find((one) => one.id === id) : undefined;
  const path = `/api/admin/dlq/redrive/${id}`;
  // The stream has the newest redrives only.
  const load = (/** @type {AbortSignal} */ abort) => /** @type {Promise<Redrive>} */ (get(path, abort));
  const { data, problem, reload } = useLoaded(`${path} ${live ? 'once' : 'again'}`, load, live ? 0 : REFRESH);
  return { redrive: live ?? data, problem: live ? null : problem, reload };
}

/** @param {{ id: string }} properties */
export const Redrive = ({ id }) => (isUuid(id) ? html`<${RedriveWithId} id=${id} />` : html`<${Unknown} id=${id} />`);

/** @param {{ id: string }} properties */
const Unknown = ({ id }) => html`<h1>There is no redrive ${id}</h1><p><${Link} href="/dead-letters">Dead letters and recent redrives<//></p>`;

/** @param {{ id: string }} properties */
function RedriveWithId({ id }) {
  const { redrive, problem, reload } = useRedrive(id);
  if (!redrive) {
    if (isNotFound(problem)) return html`<${Unknown} id=${id} />`;
    return problem ? html`<h1>Redrive</h1><${Failure} problem=${problem} />` : html`<p class="loading">Loading…</p>`;
  }
  const filter = /** @type {Record<string, string>} */ (redrive.filter);
  return html`<h1>Redrive <${Status} status=${redrive.status} /></h1>
    <${Failure} problem=${problem} />
    <p class="intro">Dead letters of ${filterInWords(filter)}. <${Link} href=${address('/dead-letters', filter)}>Back to the cause<//></p>
    ${redrive.stopped_because && html`<p class="failure" role="alert"><b>Stopped:</b> <${WithLinks} text=${redrive.stopped_because} /></p>`}
    <${Progress} redrive=${redrive} />
    <${Controls} redrive=${redrive} changed=${reload} />
    ${isOver(redrive) && html`<${Ending} redrive=${redrive} />`}
    <${Plan} redrive=${redrive} />`;
}

/** A reason to stop names the dead letter that failed. @param {{ text: string }} properties */
const WithLinks = ({ text }) => text.split(/([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})/).map((part, index) => (index % 2 === 1
  ? html`<${Id} id=${part} to=${`/dead-letters/${part}`} />` : part));

/** @type {Record<string, string>} */
const LABELS = { resolved: 'Resolved', 'in vain': 'In vain: changed nothing', failed: 'Failed', 'in flight': 'In flight', remaining: 'Remaining' };

/** @param {{ redrive: Redrive }} properties */
function Progress({ redrive }) {
  const { round_sent: sent, round_matching: of, rate, remaining, status } = redrive;
  const left = rate && remaining > 0 && status === 'RUNNING' ? duration((remaining / rate) * 1000) : null;
  return html`<${Panel} title="Progress" class="redrive-progress">
    <${ProgressBar} redrive=${redrive} />
    <dl class="tiles">
      <div><dt>Sent</dt><dd>${number(redrive.sent)}</dd></div>
      ${partsOf(redrive).map(([name, count]) => html`<div key=${name}><dt><i class=${`key ${name.replace(' ', '-')}`}></i>${LABELS[name]}</dt>
        <dd>${number(count)}</dd></div>`)}
    </dl>
    <p>Canary: ${canaryText(redrive)} ${left && html`At ${number(rate)} a second the rest takes about ${left}.`} ${redrive.round > 1
      && html`This is round ${number(redrive.round)}: ${number(sent)} of ${number(of)} sent.`}</p>
    ${redrive.in_flight > 0 && !isOver(redrive) && Date.parse(redrive.updated_at) < serverNow.value - 60_000
      && html`<p class="quiet">The status has not changed for <${Since} at=${redrive.updated_at} />. Replays in flight wait for the service that has them.</p>`}
  <//>`;
}

/** @param {{ redrive: Redrive, changed: () => void }} properties */
function Controls({ redrive, changed }) {
  const { id, status, remaining, in_flight: inFlight } = redrive;
  const path = `/api/admin/dlq/redrive/${id}`, rest = counted(remaining, 'dead letter');
  /** @type {(name: string, title: string, done: string, effect: string, kind?: string) => void} */
  const change = (name, title, done, effect, kind = 'primary') => confirmChange({
    title, effect: html`<p>${effect}</p>`, label: title, kind, isReasonRequired: name === 'cancel',
    run: (reason) => post(`${path}/${name}`, reason ? { reason } : {}),
    done: () => { changed(); return done; },
  });
  const flight = inFlight > 0 ? ` ${counted(inFlight, 'replay')} in flight will still have an outcome.` : '';
  const isSending = status === 'CANARY' || status === 'RUNNING';
  if (status === 'DONE' || status === 'CANCELLED') return null;
  return html`<div class="buttons">
    ${isSending && html`<${Action} 
      onClick=${() => change('pause', 'Pause the redrive', 'Paused', `What remains, ${rest} now, waits until the redrive is resumed.${flight}`)}>Pause…<//>`}
    ${status === 'PAUSED' && html`<${Action} kind="primary" 
      onClick=${() => change('resume', 'Resume the redrive', 'Resumed', `It goes on with what remains, ${rest} now.`)}>Resume…<//>`}
    ${status === 'STOPPED' && html`<${Action} 
      onClick=${() => change('resume', 'Start another round', 'Started another round',
        `It replays what matches the filter now, ${rest}, with a new canary first. Fix the cause before.`)}>Another round…<//>`}
    <${Action}
      onClick=${() => change('cancel', 'Cancel the redrive', 'Cancelled',
        `What remains, ${rest} now, stays pending, and this redrive cannot go on.${flight}`, 'danger')}>Cancel…<//>
  </div>`;
}

/** @param {{ redrive: Redrive }} properties */
function Ending({ redrive }) {
  return html`<${Panel} class="causes" title="What it did"><p><b>${whatItDid(redrive)}</b></p><${Reconciliation} /><//>`;
}

/** Seconds in which a reconciliation answers. */
const WAIT = 10;

/** Runs a reconciliation, and shows its verdict. */
function Reconciliation() {
  /** @type {{ isRunning: boolean, report: import('../../types.js').Schemas['Report'] | null, problem: unknown }} */
  const before = { isRunning: false, report: null, problem: null };
  const [state, setState] = useState(before);
  const run = async () => {
    setState({ isRunning: true, report: null, problem: null });
    try {
      setState({ isRunning: false, report: await get(`/api/admin/reconciliation?wait=${WAIT}`), problem: null });
    } catch (problem) {
      setState({ isRunning: false, report: null, problem });
    }
  };
  const { isRunning, report, problem } = state;
  return html`<p class="buttons">
    <button type="button" onClick=${run} disabled=${isRunning}>${isRunning ? `Comparing, up to ${WAIT} s…` : report ? 'Compare again' : 'Do orders, stock and money agree now?'}</button></p>
    <${Failure} problem=${problem} />
    <div role="status">${report && html`<p><${Status} status=${report.verdict} /> <b>${report.headline}</b>, compared at <${Time} at=${report.checked_at} /></p>
      ${report.in_flight.length > 0 && html`<p>In flight: ${report.in_flight.map((one) => one.what).join('; ')}</p>`}
      ${report.unanswered.length > 0 && html`<p class="warn">No answer: ${report.unanswered.map((one) => `${one.service}: ${one.why}`).join('; ')}</p>`}
      ${(report.discrepancy_count > 0 || report.suspected_count > 0)
        && html`<p>${counted(report.discrepancy_count, 'discrepancy', 'discrepancies')}, and ${number(report.suspected_count)} that work in flight may still resolve.
          ${' '}<${Link} href="/books">Open the books<//></p>`}`}</div>`;
}

/** @param {{ redrive: Redrive }} properties */
function Plan({ redrive }) {
  const active = !isOver(redrive);
  return html`<${Panel} title="Plan">
    <dl class="facts">
      <div><dt>Started by</dt><dd>${redrive.operator}</dd></div>
      <div><dt>Reason</dt><dd>${redrive.reason ?? '–'}</dd></div>
      <div><dt>Started</dt><dd><${Time} at=${redrive.created_at} /> (<${Since} at=${redrive.created_at} />)</dd></div>
      <div><dt>${active ? 'Status since' : 'Ended'}</dt><dd><${Time} at=${redrive.updated_at} /></dd></div>
      <div><dt>Matched at the start</dt><dd>${number(redrive.matching)}</dd></div>
      <div><dt>Canary</dt><dd>${number(redrive.canary)}</dd></div>
      <div><dt>Rate</dt><dd>${redrive.rate ? `${number(redrive.rate)} a second` : 'unlimited'}</dd></div>
      <div><dt>Force</dt><dd>${redrive.force ? 'yes' : 'no'}</dd></div>
    </dl>
    <p><${Link} href=${address('/activity', { target: redrive.id })}>Its entries in the audit log<//></p>
    <${Command} command=${`redrive follow ${redrive.id}`} />
  <//>`;
}
