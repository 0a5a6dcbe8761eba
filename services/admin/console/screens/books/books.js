// Books: whether orders, stock, money and messages agree, and what to do where they do not.
import { counted, money, number } from '../../lib/format.js';
import { html, useEffect } from '../../lib/html.js';
import { overview } from '../../lib/live.js';
import { Link } from '../../lib/router.js';
import { Failure, Panel, Since, Time } from '../../lib/ui.js';
import { check, CheckProgress, CheckStart, startCheck } from './check.js';
import { Moving, Wrong } from './discrepancies.js';
import { Export } from './export.js';
import { ByPeople } from './people.js';

/** @typedef {import('../../types.js').Schemas} Schemas @typedef {Schemas['Report']} Report @typedef {Schemas['ReconciliationSummary']} Summary */

export function Books() {
  const { report, isRunning, problem } = check.value;
  const summary = overview.value?.reconciliation ?? null;
  const needsReport = isReportNeeded();
  useEffect(() => { if (needsReport && !check.value.report && !check.value.isRunning && !check.value.problem) startCheck({ full: false }); }, [needsReport]);
  return html`
    <${Verdict} report=${report} summary=${summary} />
    <div class="books-check">${isRunning ? html`<${CheckProgress} />` : html`<${CheckStart} />`}</div>
    <${Failure} problem=${problem} />
    ${report && html`<${Report} report=${report} />`}
    <${ByPeople} report=${report} />`;
}

/** Whether only a report can tell what is wrong. */
function isReportNeeded() {
  if (!overview.value) return false;
  const { reconciliation, findings } = overview.value;
  return reconciliation?.verdict !== 'BALANCED' || (reconciliation.resolved_to_check ?? 0) > 0
     || findings.some((one) => one.code === 'reconciliation_incomplete');
}

/** Whether a reconciliation of now could have a verdict: it reads all services, and what the broker has. */
function isComparable() {
  const { services = [], unconsumed } = overview.value ?? {};
  return unconsumed !== undefined && services.every((one) => one.ready && !one.problem);
}

/** @param {{ report: Report | null, summary: Summary | null }} properties */
function Verdict({ report, summary }) {
  const isReportNewer = report !== null && (!summary || Date.parse(report.checked_at) >= Date.parse(summary.at));
  const verdict = isReportNewer ? report.verdict : summary?.verdict;
  const isPast = verdict === 'BALANCED' && !isComparable();
  const text = isPast ? 'The books balanced when they were compared last. Now they cannot be compared: not all services can be read.'
    : isReportNewer ? inWords(report) : summary ? summaryInWords(summary) : overview.value ? UNKNOWN : 'Waiting for admin…';
  const balanced = lastBalanced(report, summary);
  const tone = isPast ? '' : verdict === 'BALANCED' ? 'good' : verdict === 'UNBALANCED' ? 'bad' : '';
  return html`<h1 class=${`headline ${tone}`} aria-live="polite">${text}</h1>
    <dl class="facts">
      <div><dt>Last balanced</dt><dd>${balanced ? html`<${Time} at=${balanced} /> (<${Since} at=${balanced} /> ago)` : 'not known here'}</dd></div>
      ${summary && !isReportNewer && html`
        <div><dt>Last conclusive result</dt><dd><${Time} at=${summary.at} />, ${resultOf(summary)}</dd></div>`}
      ${report && html`<div><dt>This report</dt><dd><${Time} at=${report.checked_at} /></dd></div><div><dt>It read</dt><dd>${extent(report.scope)}</dd></div>`}
      ${report?.scope?.full_at && html`<div><dt>Everything was read and balanced</dt><dd><${Time} at=${report.scope.full_at} /></dd></div>`}
    </dl>
    ${report && !isReportNewer && html`<p class="warn">Admin has reconciled since. The report below is older: check again to see what is true now.</p>`}
    ${report && !summary && overview.value && html`
      <p class="warn">Something was resolved or accepted since the last result, or there was none: check again.</p>`}`;
}

/** @param {Summary} summary */
const resultOf = (summary) => (summary.verdict === 'BALANCED' ? 'balanced' : counted(summary.discrepancies, 'discrepancy', 'discrepancies'));

const UNKNOWN = 'It is not known whether the books balance: there was no result since the start, or since something was resolved or accepted.';

/** @param {Summary} summary */
function summaryInWords({ verdict, discrepancies, resolved_to_check: toCheck = 0 }) {
  const also = toCheck > 0 ? ` ${counted(toCheck, 'manual resolution')} must be checked: money may have been returned twice.` : '';
  if (verdict === 'BALANCED') return `The books balance.${also}`;
  if (verdict === 'UNBALANCED') return `The books do not balance: ${counted(discrepancies, 'discrepancy', 'discrepancies')}.${also}`;
  return `It cannot be told yet whether the books balance.${also}`;
}

/** @param {Report} report */
function inWords(report) {
  const { summary, resolved_to_check: toCheck = 0 } = report;
  const also = toCheck > 0 ? ` ${counted(toCheck, 'manual resolution')} must be checked: money may have been returned twice.` : '';
  if (report.verdict === 'BALANCED') return `The books balance: stock, money and messages of ${counted(summary.orders, 'order')} agree.${also}`;
  const silent = report.unanswered.map((one) => one.service).join(', ');
  const more = silent ? ` There may be more: ${silent} did not answer.` : '';
  const wrong = counted(report.discrepancy_count, 'discrepancy', 'discrepancies');
  if (report.verdict === 'UNBALANCED') return `The books do not balance: ${wrong}${affected(report)}.${more}${also}`;
  const why = silent ? `${silent} did not answer` : report.in_flight.length > 0 ? 'work is in flight' : 'the differences may still resolve themselves';
  return `It cannot be told yet whether the books balance: ${why}.${also}`;
}

/** Orders and money that confirmed discrepancies concern. @param {Report} report */
function affected(report) {
  /** @type {Map<string, Schemas['Money']>} */
  const orders = new Map();
  for (const { subject, amount } of report.discrepancies) if (amount) orders.set(subject, amount);
  if (orders.size === 0) return '';
  /** @type {Map<string, number>} */
  const sums = new Map();
  for (const { currency, amount_minor: minor } of orders.values()) sums.set(currency, (sums.get(currency) ?? 0) + minor);
  const amounts = [...sums].map(([currency, minor]) => money({ currency, amount_minor: minor })).join(' and ');
  const isSample = report.discrepancies.length < report.discrepancy_count;
  return `, in ${isSample ? 'at least ' : ''}${counted(orders.size, 'order')} of ${amounts}`;
}

/** Latest time at which everything agreed, of those that admin tells. @param {Report | null} report @param {Summary | null} summary */
function lastBalanced(report, summary) {
  const times = [
    summary?.verdict === 'BALANCED' ? summary.at : null, report?.verdict === 'BALANCED' ? report.checked_at : null,
    report?.scope?.since, report?.scope?.full_at,
  ];
  return times.flatMap((at) => (at ? [at] : [])).sort((one, other) => Date.parse(other) - Date.parse(one))[0] ?? null;
}

/** @param {Schemas['Scope'] | undefined} scope */
function extent(scope) {
  if (!scope || scope.full) return 'everything';
  return html`${counted(scope.orders_read ?? 0, 'order')} changed since <${Time} at=${scope.since} />; totals of the rest carried forward`;
}

/** @param {{ report: Report }} properties */
function Report({ report }) {
  return html`
    ${report.unanswered.length > 0 && html`
      <${Panel} title="Not everything could be read" class="books-unread">
        <ul>${report.unanswered.map((one) => html`<li key=${one.service}><b>${one.service}</b>: ${one.why}</li>`)}</ul>
        <p class="quiet">What these services hold is missing in this report.</p><//>`}
    <${Wrong} report=${report} />
    <div class="columns"><${Moving} report=${report} /><${Totals} report=${report} /></div>`;
}

/** @param {{ report: Report }} properties */
function Totals({ report }) {
  const { summary, unanswered } = report;
  // Admin counts nothing of who did not answer. That is not zero.
  const of = (/** @type {string} */ service, /** @type {number} */ total) => (unanswered.some((one) => one.service === service) ? null : total);
  const ofAll = (/** @type {number} */ total) => (unanswered.length > 0 ? null : total);
  /** @type {[string, number | null][]} */
  const tiles = [
    ['Orders', of('order', summary.orders)], ['confirmed', of('order', summary.confirmed)], ['cancelled', of('order', summary.cancelled)],
    ['pending', of('order', summary.pending)], ['overdue', of('order', summary.overdue)],
    ['Charges captured', of('bank', summary.captured)], ['refunded', of('bank', summary.refunded)],
    ['Pieces on hand', of('inventory', summary.on_hand)], ['reserved', of('inventory', summary.reserved)], ['sold', of('inventory', summary.sold)],
    ['supplied', of('inventory', summary.supplied)], ['Facts published', ofAll(summary.facts_published)], ['Rows compared', summary.rows_checked],
  ];
  const deadLetters = ofAll(summary.dead_letters);
  return html`<${Panel} title="Totals" actions=${html`<${Export} report=${report} />`}>
    <dl class="tiles">${tiles.map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd>${number(value)}</dd></div>`)}
      <div><dt>Dead letters</dt><dd>${deadLetters ? html`<${Link} href="/dead-letters">${number(deadLetters)}<//>` : number(deadLetters)}</dd></div></dl>
    ${unanswered.length > 0 && html`<p class="quiet">Without what ${unanswered.map((one) => one.service).join(', ')} would add.</p>`}
  <//>`;
}
