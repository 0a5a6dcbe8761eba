// Books: whether orders, stock, money and messages agree, and what to do where they do not.
import { counted, money, number } from '../lib/format.js';
import { html, useEffect } from '../lib/html.js';
import { overview } from '../lib/live.js';
import { Link } from '../lib/router.js';
import { Failure, Panel, Since, Time } from '../lib/ui.js';
import { check, CheckProgress, CheckStart, startCheck } from './books_check.js';
import { Moving, Wrong } from './books_discrepancies.js';
import { Export } from './books_export.js';
import { ByPeople } from './books_people.js';

/** @typedef {import('../types.js').Schemas} Schemas @typedef {Schemas['Report']} Report @typedef {Schemas['ReconciliationSummary']} Summary */

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
  return reconciliation?.verdict !== 'BALANCED' || (reconciliation.resolved_to_check ?? 0) > 0 || findings.some((one) => one.code === 'reconciliation_incomplete');
}

/** @param {{ report: Report | null, summary: Summary | null }} properties */
function Verdict({ report, summary }) {
  const isReportNewer = report !== null && (!summary || Date.parse(report.checked_at) >= Date.parse(summary.at));
  const verdict = isReportNewer ? report.verdict : summary?.verdict;
  const text = isReportNewer ? inWords(report) : summary ? summaryInWords(summary) : overview.value ? UNKNOWN : 'Waiting for admin…';
  const balanced = lastBalanced(report, summary);
  const tone = verdict === 'BALANCED' ? 'good' : verdict === 'UNBALANCED' ? 'bad' : '';
  return html`<h1 class=${`headline ${tone}`} aria-live="polite">${text}</h1>
    <dl class="facts">
      <div><dt>Last balanced</dt><dd>${balanced ? html`<${Time} at=${balanced} /> (<${Since} at=${balanced} /> ago)` : 'not known here'}</dd></div>
      ${summary && !isReportNewer && html`<div><dt>Last conclusive result</dt><dd><${Time} at=${summary.at} />, ${summary.verdict === 'BALANCED' ? 'balanced' : counted(summary.discrepancies, 'discrepancy', 'discrepancies')}</dd></div>`}
      ${report && html`<div><dt>This report</dt><dd><${Time} at=${report.checked_at} /></dd></div><div><dt>It read</dt><dd>${extent(report.scope)}</dd></div>`}
      ${report?.scope?.full_at && html`<div><dt>Everything was read and balanced</dt><dd><${Time} at=${report.scope.full_at} /></dd></div>`}
    </dl>
    ${report && !isReportNewer && html`<p class="warn">Admin has reconciled since. The report below is older: check again to see what is true now.</p>`}
    ${report && !summary && overview.value && html`<p class="warn">Something was resolved or accepted since the last result, or there was none: check again.</p>`}`;
}

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
  if (report.verdict === 'UNBALANCED') return `The books do not balance: ${counted(report.discrepancy_count, 'discrepancy', 'discrepancies')}${affected(report)}.${also}`;
  const silent = report.unanswered.map((one) => one.service).join(', ');
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
  const times = [summary?.verdict === 'BALANCED' ? summary.at : null, report?.verdict === 'BALANCED' ? report.checked_at : null, report?.scope?.since, report?.scope?.full_at];
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
    ${report.unanswered.length > 0 && html`<${Panel} title="Not everything could be read"><ul>${report.unanswered.map((one) => html`<li key=${one.service}><b>${one.service}</b>: ${one.why}</li>`)}</ul><p class="quiet">What these services hold is missing in this report.</p><//>`}
    <${Wrong} report=${report} />
    <div class="columns"><${Moving} report=${report} /><${Totals} report=${report} /></div>`;
}

/** @param {{ report: Report }} properties */
function Totals({ report }) {
  const { summary } = report;
  /** @type {[string, number][]} */
  const tiles = [
    ['Orders', summary.orders], ['confirmed', summary.confirmed], ['cancelled', summary.cancelled], ['pending', summary.pending], ['overdue', summary.overdue],
    ['Charges captured', summary.captured], ['refunded', summary.refunded], ['Pieces on hand', summary.on_hand], ['reserved', summary.reserved], ['sold', summary.sold],
    ['supplied', summary.supplied], ['Facts published', summary.facts_published], ['Rows compared', summary.rows_checked],
  ];
  return html`<${Panel} title="Totals" actions=${html`<${Export} report=${report} />`}>
    <dl class="tiles">${tiles.map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd>${number(value)}</dd></div>`)}
      <div><dt>Dead letters</dt><dd>${summary.dead_letters > 0 ? html`<${Link} href="/dead-letters">${number(summary.dead_letters)}<//>` : '0'}</dd></div></dl>
    ${report.unanswered.length > 0 && html`<p class="quiet">Without ${report.unanswered.map((one) => one.service).join(', ')}.</p>`}
  <//>`;
}
