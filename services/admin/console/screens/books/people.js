// Books: what people accepted or resolved by hand, and why.
import { get } from '../../lib/api.js';
import { counted, messageOf, money, number } from '../../lib/format.js';
import { html } from '../../lib/html.js';
import { address, Link } from '../../lib/router.js';
import { Failure, Id, OrderLink, Panel, Time, useLoaded } from '../../lib/ui.js';
import { isId } from './rules.js';

/** @typedef {import('../../types.js').Schemas} Schemas @typedef {Schemas['Report']} Report @typedef {Schemas['LogEntry']} LogEntry */

/** Changes by which people decide what counts as right. @type {Record<string, string>} */
const DECISIONS = {
  'reconciliation.accept_baseline': 'accepted the baseline of', 'saga.resolve': 'resolved', 'saga.withdraw_resolution': 'withdrew the resolution of',
  'dlq.resolve': 'resolved dead letter', 'dlq.resolve_many': 'resolved dead letters', 'payment.refund': 'refunded by hand',
};

/** Entries of each decision that are read. */
const RECENT = 20;

/** @param {AbortSignal} abort @returns {Promise<{ entries: LogEntry[], isMore: boolean, problems: string[] }>} */
async function decisions(abort) {
  const actions = Object.keys(DECISIONS);
  const pages = await Promise.allSettled(actions.map((action) => get(address('/api/admin/audit', { action, limit: RECENT }), abort)));
  const read = pages.flatMap((page) => (page.status === 'fulfilled' ? [page.value] : []));
  const entries = read.flatMap((page) => page.entries).sort((one, other) => Date.parse(other.at) - Date.parse(one.at));
  const problems = pages.flatMap((page, index) => (page.status === 'rejected' ? [`${actions[index]}: ${messageOf(page.reason)}`] : []));
  return { entries, isMore: read.some((page) => page.next), problems };
}

/** @param {{ report: Report | null }} properties */
export function ByPeople({ report }) {
  const { data, problem } = useLoaded(`decisions of ${report?.checked_at}`, decisions);
  const resolved = report?.resolved ?? [], baselines = Object.entries(report?.baselines ?? {});
  return html`<${Panel} title="Accepted or resolved by people">
    <${Failure} problem=${problem} />
    ${resolved.length > 0 && html`<h3>Differences that stand because a person resolved them</h3><${Resolved} report=${/** @type {Report} */ (report)} />`}
    ${baselines.length > 0 && html`<h3>Baselines: messages that a step never processed, accepted</h3>
      <${Baselines} baselines=${baselines} entries=${data?.entries ?? []} />`}
    <h3>Decisions, newest first</h3>
    ${data && data.problems.length > 0 && html`<${Failure} problem=${`Some decisions could not be read: ${data.problems.join('; ')}`} />`}
    ${data && data.entries.length > 0 && html`<ul class="books-decisions">
      ${data.entries.map((entry) => html`<${Decision} key=${entry.id} entry=${entry} />`)}</ul>`}
    ${data && data.entries.length === 0 && data.problems.length === 0 && html`
      <p class="quiet">None. Manual resolutions, accepted baselines and manual refunds would be here, with who, when and why.</p>`}
    ${data?.isMore && html`<p class="quiet">The newest ${RECENT} of each kind. <${Link} href="/activity">All in Activity<//></p>`}
  <//>`;
}

/** @param {{ report: Report }} properties */
function Resolved({ report }) {
  return html`<div class="scroll"><table>
    <thead><tr><th>Order</th><th>What stands</th><th class="right">Difference</th><th class="right">Money</th><th>By</th><th>Why</th><th>When</th></tr></thead>
    <tbody>${report.resolved.map((one, index) => html`<tr key=${index}>
      <td><${OrderLink} id=${one.subject} /></td>
        <td>${one.what}${one.detail && `: ${one.detail}`}${one.check && html`<p class="warn">Check it: ${one.check}</p>`}</td>
      <td class="right">${one.difference ?? ''}</td><td class="right">${one.amount ? money(one.amount) : ''}</td>
        <td>${one.operator}</td><td>${one.reason}</td><td><${Time} at=${one.since} /></td></tr>`)}</tbody>
  </table></div>${report.resolved.length < report.resolved_count
    && html`<p class="quiet">${number(report.resolved.length)} of ${number(report.resolved_count)}, those to check first.</p>`}`;
}

/** @param {{ baselines: [string, Schemas['Baseline']][], entries: LogEntry[] }} properties */
function Baselines({ baselines, entries }) {
  const accepted = (/** @type {string} */ step) => entries.find((one) => one.action === 'reconciliation.accept_baseline' && one.target === step
     && one.outcome === 'done');
  return html`<div class="scroll"><table>
    <thead><tr><th>Step</th><th class="right">Missed messages</th><th>By</th><th>Why</th><th>When</th></tr></thead>
    <tbody>${baselines.map(([step, { missed, at }]) => { const entry = accepted(step); return html`<tr key=${step}>
      <td>${step}</td><td class="right">${number(missed)}</td><td>${entry?.operator ?? '–'}</td>
        <td>${entry?.reason ?? '–'}</td><td><${Time} at=${at} /></td></tr>`; })}</tbody>
  </table></div>`;
}

/** @param {{ entry: LogEntry }} properties */
function Decision({ entry }) {
  const detail = /** @type {Record<string, any>} */ (entry.detail ?? {});
  const order = isId(entry.target) && !entry.action.startsWith('dlq.') ? entry.target : detail.saga;
  const isDone = /^done\b/.test(entry.outcome), failure = entry.outcome === 'asked' ? 'outcome not known yet' : `not done: ${entry.outcome}`;
  return html`<li><${Time} at=${entry.at} /> <b>${entry.operator}</b> ${DECISIONS[entry.action]} <${Target} entry=${entry} />
    ${order && html` order <${OrderLink} id=${order} />`}
    ${typeof detail.missed === 'number' && ` (${counted(detail.missed, 'message')})`}
    ${detail.amount && ` (${money(detail.amount)})`}
    ${entry.reason ? `: “${entry.reason}”` : html` <span class="quiet">without a reason</span>`}
    ${!isDone && html` <span class="warn">${failure}</span>`}</li>`;
}

/** @param {{ entry: LogEntry }} properties */
function Target({ entry: { action, target } }) {
  if (action === 'dlq.resolve') return html`<${Id} id=${target} to=${`/dead-letters/${target}`} />`;
  return isId(target) ? null : html`<b>${target}</b>`;
}
