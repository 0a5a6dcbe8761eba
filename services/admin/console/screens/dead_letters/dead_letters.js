// Dead letters: causes first, then the letters themselves, and the redrives.
import { get } from '../../lib/api.js';
import { counted, inWords, money, number } from '../../lib/format.js';
import { html } from '../../lib/html.js';
import { overview, redrives } from '../../lib/live.js';
import { address, Link, route } from '../../lib/router.js';
import { Action, Countdown, Failure, Id, Panel, Since, Status, Time, useLoaded } from '../../lib/ui.js';
import { changeMany, CHANGES } from './changes.js';
import { FilterForm, filterInWords, isNarrow, listAddress, viewOf, wizardAddress } from './filter.js';
import { Letters } from './list.js';
import { isOver, ProgressBar } from '../redrive/progress.js';
import { RedriveWizard } from '../redrive/wizard.js';

/** @typedef {import('../../types.js').DeadLetterGroup} Cause */

const REFRESH = 3_000;

export function DeadLetters() {
  const view = viewOf();
  if (route.value.query.get('wizard')) return html`<${RedriveWizard} view=${view} />`;
  return html`<${Overview} view=${view} />`;
}

/** @param {{ view: import('./filter.js').View }} properties */
function Overview({ view }) {
  const { service, step, type, fingerprint } = view.fields;
  const path = address('/api/admin/dlq/groups', { service, step, type, status: view.status === 'ANY' ? '' : view.status, limit: 200 });
  const { data, problem, reload } = useLoaded(path, (abort) => /** @type {Promise<{ groups: Cause[] }>} */ (get(path, abort)), REFRESH);
  const causes = (data?.groups ?? []).toSorted(byUrgency), chosen = causes.find((one) => one.fingerprint === fingerprint);
  return html`<h1>Dead letters</h1>
    <${Panel} class="causes" title=${fingerprint ? 'The chosen cause' : 'Causes'} actions=${fingerprint
      && html`<${Link} href=${listAddress({ ...view, fields: without(view.fields, 'fingerprint') })}>Show all causes<//>`}>
      <${Failure} problem=${problem} />
      ${fingerprint ? chosen ? html`<${CauseCard} cause=${chosen} changed=${reload} />` : data
        && html`<p>No ${statusInWords(view.status)} dead letter has the cause <code>${fingerprint}</code>.</p>`
        : html`<${CauseTable} causes=${causes} view=${view} isLoaded=${data !== null} />`}
    <//>
    <${Redrives} />
    <${FilterForm} view=${view} />
    <${Letters} key=${JSON.stringify([view.fields, view.status])} view=${view} changed=${reload} />`;
}

/** @param {string} status */
const statusInWords = (status) => (status && status !== 'ANY' ? inWords(status) : 'pending');

/** @param {Record<string, string>} fields @param {string} name */
const without = (fields, name) => Object.fromEntries(Object.entries(fields).filter(([one]) => one !== name));

/** Those with the next deadline first, then awaited ones, then the newest. @param {Cause} one @param {Cause} other */
function byUrgency(one, other) {
  const rank = (/** @type {Cause} */ cause) => (cause.first_until ? 0 : cause.awaited > 0 ? 1 : 2);
  return rank(one) - rank(other) || (one.first_until ?? '').localeCompare(other.first_until ?? '') || other.last_failed_at.localeCompare(one.last_failed_at);
}

/** Money in the orders of a cause, as far as the overview knows it. @param {Cause} cause */
function moneyOf(cause) {
  const finding = overview.value?.findings.find((one) => one.key === `dead_letters:${cause.fingerprint}`);
  const amounts = finding?.amounts ?? [];
  return amounts.length > 0 ? `${finding?.amounts_partial ? 'at least ' : ''}${amounts.map(money).join(', ')}` : '–';
}

/** @param {{ causes: Cause[], view: import('./filter.js').View, isLoaded: boolean }} properties */
function CauseTable({ causes, view, isLoaded }) {
  if (!isLoaded) return html`<p class="quiet">Loading…</p>`;
  if (causes.length === 0) return html`<p>No dead letters are pending${isNarrow(view) ? ` for ${filterInWords(view.fields)}` : ''}.
    Messages that a service cannot process are grouped here by the error that they share.</p>`;
  return html`<div class="scroll"><table>
    <thead><tr><th>Cause</th><th>Step</th><th>Error of the latest</th><th>First</th><th>Last</th><th class="right">Count</th><th class="right">Awaited</th>
      <th class="right">Too late</th><th class="apart">Next deadline in</th><th class="right">Money</th><th class="apart">Redrive</th></tr>
      </thead>
    <tbody>${causes.map((cause) => html`<tr key=${cause.fingerprint}>
      <td><${Link} class="id" href=${listAddress(view, { fingerprint: cause.fingerprint })}>${cause.fingerprint}<//></td>
      <td>${cause.step} <small>${cause.service}</small></td>
      <td class="error" title=${cause.reason}><span>${cause.reason}</span></td>
      <td class="nowrap"><${Time} at=${cause.first_failed_at} /></td><td class="nowrap"><${Since} at=${cause.last_failed_at} /> ago</td>
      <td class="right">${number(cause.count)}</td><td class="right"><b>${number(cause.awaited)}</b></td><td class="right">${number(cause.ended)}</td>
      <td class="nowrap apart"><${Countdown} at=${cause.first_until} /></td><td class="right nowrap">${moneyOf(cause)}</td>
      <td class="apart"><${Link} class="button" href=${wizardAddress({ fingerprint: cause.fingerprint })}>Redrive…<//></td>
    </tr>`)}</tbody>
  </table></div>`;
}

/** @param {{ cause: Cause, changed: () => void }} properties */
function CauseCard({ cause, changed }) {
  const subject = { fields: { fingerprint: cause.fingerprint } };
  return html`<p class="reason">${cause.reason}</p>
    <dl class="facts">
      <div><dt>Cause</dt><dd class="id">${cause.fingerprint}</dd></div>
      <div><dt>Step</dt><dd>${cause.step} of ${cause.service}</dd></div>
      <div><dt>First</dt><dd><${Time} at=${cause.first_failed_at} /></dd></div>
      <div><dt>Last</dt><dd><${Time} at=${cause.last_failed_at} /> (<${Since} at=${cause.last_failed_at} />)</dd></div>
      <div><dt>Dead letters</dt><dd>${number(cause.count)}</dd></div>
      <div><dt>Awaited</dt><dd>${number(cause.awaited)}</dd></div>
      <div><dt>Too late</dt><dd>${number(cause.ended)}${cause.ended > 0
        && html` <small>${number(cause.cancelled)} cancelled, ${number(cause.confirmed)} confirmed</small>`}</dd></div>
      <div><dt>Next deadline in</dt><dd><${Countdown} at=${cause.first_until} /></dd></div>
      <div><dt>Money</dt><dd>${moneyOf(cause)}</dd></div>
    </dl>
    <footer class="buttons">
      <${Link} class="button strong" href=${wizardAddress(subject.fields)}>Redrive…<//>
      <${Action} off=${cause.awaited > 0 ? '' : 'no order waits for them any more'}
        onClick=${() => changeMany(CHANGES.extend, subject, changed)}>Extend the orders…<//>
      <${Action} onClick=${() => changeMany(CHANGES.discard, subject, changed)}>Discard…<//>
      <${Link} href=${`/dead-letters/${cause.sample}`}>Look at the latest<//>
    </footer>`;
}

/** Redrives that show without being asked for. */
const NEWEST = 3;

function Redrives() {
  const known = redrives.value, active = known.filter((one) => !isOver(one));
  const first = [...active, ...known.filter((one) => !active.includes(one))].slice(0, Math.max(NEWEST, active.length));
  const others = known.filter((one) => !first.includes(one));
  return html`<${Panel} class="causes" title="Recent redrives">
    ${known.length === 0 ? html`<p>No redrives yet. A redrive replays many dead letters: a few first, then the rest
      at a limited rate, and it stops when the error comes back.</p>`
    : html`<${RedriveTable} list=${first} />${others.length > 0 && html`<details><summary>${counted(others.length, 'older redrive')}</summary>
      <${RedriveTable} list=${others} /></details>`}`}
  <//>`;
}

/** @param {{ list: import('../../types.js').Redrive[] }} properties */
function RedriveTable({ list }) {
  return html`<div class="scroll"><table>
    <thead><tr><th>Redrive</th><th>Status</th><th>Progress</th><th class="right">Resolved</th><th class="right">Failed</th><th class="right">Remaining</th>
      <th class="apart">Of</th><th>Started</th><th>By</th></tr></thead>
    <tbody>${list.map((one) => html`<tr key=${one.id}>
      <td><${Id} id=${one.id} to=${`/redrives/${one.id}`} /></td><td><${Status} status=${one.status} /></td><td class="progress">
        <${ProgressBar} redrive=${one} /></td>
      <td class="right">${number(one.resolved)}</td><td class="right">${number(one.failed)}</td><td class="right">${number(one.remaining)}</td>
      <td class="apart">${filterInWords(/** @type {Record<string, string>} */ (one.filter))}</td><td class="nowrap"><${Time} at=${one.created_at} /></td>
        <td>${one.operator}${one.reason && html` <small>${one.reason}</small>`}</td>
    </tr>`)}</tbody></table></div>`;
}
