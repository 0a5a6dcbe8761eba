// Books: the report as a file.
import { html } from '../../lib/html.js';

/** @typedef {import('../../types.js').Schemas['Report']} Report */

const COLUMNS = ['state', 'rule', 'subject', 'detail', 'difference', 'amount_minor', 'currency', 'since', 'advice', 'operator', 'reason', 'check'];

/**
 * Cell of a CSV file. Text that a spreadsheet would run as a formula gets an apostrophe before it.
 * @param {string | number | null | undefined} value
 */
export function cell(value) {
  const text = typeof value === 'number' ? String(value) : (value ?? '').replace(/^(?=\s*[=+\-@\t\r\n\uFF1D\uFF0B\uFF0D\uFF20])/, "'");
  return /[",;\r\n\t']/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

/** @param {Report} report */
export function toCsv(report) {
  const found = (/** @type {string} */ state) => (/** @type {Report['discrepancies'][number]} */ one) =>
    [state, one.rule, one.subject, one.detail, one.difference, one.amount?.amount_minor, one.amount?.currency, one.since, one.advice];
  const rows = [
    ...report.discrepancies.map(found('wrong')), ...report.suspected.map(found('may still resolve')),
    ...report.resolved.map((one) => ['resolved manually', one.what, one.subject, one.detail, one.difference, one.amount?.amount_minor, one.amount?.currency,
      one.since, '', one.operator, one.reason, one.check]),
    ...report.in_flight.map((one) => ['in flight', '', '', `${one.what}, until ${one.waits_for}`, '', '', '', one.since]),
    ...report.unanswered.map((one) => ['not read', '', one.service, one.why]),
  ];
  // The mark tells spreadsheets that it is UTF-8.
  return `\uFEFF${[COLUMNS, ...rows].map((row) => COLUMNS.map((_, index) => cell(row[index])).join(',')).join('\r\n')}\r\n`;
}

/** @param {string} name @param {string} type @param {string} text */
function download(name, type, text) {
  const link = document.createElement('a'), url = URL.createObjectURL(new Blob([text], { type }));
  link.href = url;
  link.download = name;
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

/** @param {{ report: Report }} properties */
export function Export({ report }) {
  const name = `reconciliation-${report.checked_at.slice(0, 19).replaceAll(':', '')}Z`;
  return html`<span class="books-export">Save the report as
    <button type="button" onClick=${() => download(`${name}.json`, 'application/json', `${JSON.stringify(report, null, 2)}\n`)}>JSON</button>
    <button type="button" onClick=${() => download(`${name}.csv`, 'text/csv;charset=utf-8', toCsv(report))}>CSV</button></span>`;
}
