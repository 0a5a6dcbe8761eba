// Activity: the entries of the time line.
import { counted, duration, number } from '../../lib/format.js';
import { html, useState } from '../../lib/html.js';
import { address, Link } from '../../lib/router.js';
import { Countdown, DeadLettersLink, Id, OrderLink, Status, Time } from '../../lib/ui.js';
import { Change, ordersOf } from './words.js';

/** @typedef {import('../../types.js').Schemas} Schemas @typedef {import('./sources.js').TimeLineEntry} TimeLineEntry */

/** Who acted: a person, a person on a process, or the system. @param {TimeLineEntry} entry @returns {[string, string]} word and tone */
function authorOf(entry) {
  if (entry.kind !== 'change' || entry.value.operator === 'system') return ['system', 'neutral'];
  return entry.value.action.startsWith('process.') ? ['process', 'warn'] : ['person', 'busy'];
}

/** @param {{ entry: TimeLineEntry }} properties */
export function Entry({ entry }) {
  const [author, tone] = authorOf(entry);
  return html`<li class="activity-entry">
    <span class="activity-when"><${Time} at=${entry.at} /></span>
    <span class="activity-author"><span class=${`status ${tone}`}>${author}</span></span>
    <div class="activity-body"><${Body} entry=${entry} /></div>
  </li>`;
}

/** @param {{ entry: TimeLineEntry }} properties */
function Body({ entry }) {
  switch (entry.kind) {
    case 'change': return html`<${ChangeEntry} entry=${entry.value} />`;
    case 'notification': return html`<${Notification} sent=${entry.value} />`;
    case 'finding': return html`<${Finding} finding=${entry.value} />`;
    case 'cleared': return html`<p>A problem is gone: ${entry.value.text}</p><${Details} of=${entry.value} />`;
    case 'redrive': return html`<${RedriveEntry} redrive=${entry.value} />`;
    case 'reconciliation': return html`<${Reconciliation} summary=${entry.value} />`;
  }
}

/** @param {{ entry: Schemas['LogEntry'] }} properties */
function ChangeEntry({ entry }) {
  return html`<p><${Change} entry=${entry} /> <${Outcome} outcome=${entry.outcome} /></p>
    ${entry.reason && html`<p class="activity-reason">“${entry.reason}”</p>`}
    <${Details} of=${{ ...entry.detail, 'id of the entry': entry.id, action: entry.action, target: entry.target }} orders=${ordersOf(entry.detail ?? {})}>
      <p><${Link} href=${address('/activity', { target: entry.target })}>All that happened to ${entry.target}<//></p>
      <p><${Link} href=${address('/activity', { operator: entry.operator })}>All that ${entry.operator} did<//></p>
    <//>`;
}

/** @param {{ outcome: string }} properties */
function Outcome({ outcome }) {
  if (outcome === 'done') return html`<span class="activity-outcome quiet">done</span>`;
  if (outcome.startsWith('done')) return html`<span class="activity-outcome">${outcome}</span>`;
  if (outcome === 'asked') return html`<span class="activity-outcome warn">asked; the outcome is not known yet</span>`;
  return html`<span class="activity-outcome activity-rejected">rejected: ${outcome}</span>`;
}

/** @param {{ sent: Schemas['SentNotification'] }} properties */
function Notification({ sent }) {
  return html`<p>Notification: ${sent.text} <${Delivery} sent=${sent} /></p><${Details} of=${sent} />`;
}

/** @param {{ sent: Schemas['SentNotification'] }} properties */
function Delivery({ sent }) {
  if (sent.delivered_at) {
    const took = Math.max(0, Date.parse(sent.delivered_at) - Date.parse(sent.at));
    return html`<span class="activity-outcome quiet">delivered after ${duration(took)}</span>`;
  }
  if (sent.given_up) return html`<span class="activity-outcome activity-rejected">given up: ${sent.given_up}</span>`;
  const why = sent.failure ? `: ${sent.failure}` : '';
  const { next_attempt: next } = sent;
  const until = html`<${Time} at=${next} /> (<${Countdown} at=${next} />)`;
  if (next) return html`<span class="activity-outcome warn">not delivered yet${why}; held back until ${until}</span>`;
  return html`<span class="activity-outcome warn">is being delivered${why}</span>`;
}

/** @param {{ finding: Schemas['OpenFinding'] }} properties */
function Finding({ finding }) {
  const [code] = finding.key.split(':'), fingerprint = finding.key.slice(code.length + 1);
  const state = finding.notified_at ? html`<span class="activity-outcome quiet">people were last told at <${Time} at=${finding.notified_at} /></span>`
    : finding.cleared_at ? html`<span class="activity-outcome quiet">it was gone before people were told</span>`
      : html`<span class="activity-outcome warn">held back: people have not been told yet</span>`;
  return html`<p>A problem was seen: ${finding.text} ${state}</p>
    <${Details} of=${finding}>${code === 'dead_letters' && html`<p><${DeadLettersLink} filter=${{ fingerprint }}>Its dead letters<//></p>`}
      ${code === 'ledgers_unbalanced' && html`<p><${Link} href="/books">What is wrong<//></p>`}<//>`;
}

/** @param {{ redrive: Schemas['RedriveView'] }} properties */
function RedriveEntry({ redrive }) {
  const { id, status, sent, resolved, failed, remaining, operator, stopped_because: why } = redrive;
  const progress = `, ${counted(sent, 'dead letter')} replayed, ${number(resolved)} resolved, ${number(failed)} failed, ${number(remaining)} remaining`;
  return html`<p>Redrive <${Id} id=${id} to=${`/redrives/${id}`} /> of <b>${operator}</b> is <${Status} status=${status} />${progress}
      ${why && html` <span class="activity-outcome warn">${why}</span>`}</p>
    ${redrive.reason && html`<p class="activity-reason">“${redrive.reason}”</p>`}<${Details} of=${redrive} />`;
}

/** @param {{ summary: Schemas['ReconciliationSummary'] }} properties */
function Reconciliation({ summary }) {
  const isUnbalanced = summary.verdict === 'UNBALANCED';
  const text = isUnbalanced ? `the books do not balance: ${counted(summary.discrepancies, 'discrepancy', 'discrepancies')}` : 'the books balance';
  return html`<p class=${isUnbalanced ? 'activity-rejected' : ''}>The last reconciliation with a result: ${text}. <${Link} href="/books">Books<//></p>`;
}

/** Everything that is known of an entry, once it is asked for. @param {{ of: Record<string, any>, orders?: string[], children?: any }} properties */
function Details({ of: known, orders = [], children }) {
  const [isOpen, setOpen] = useState(false);
  const fields = Object.entries(known).filter(([, value]) => value !== null && value !== undefined && value !== '');
  const toggle = (/** @type {Event} */ event) => setOpen(/** @type {HTMLDetailsElement} */ (event.currentTarget).open);
  return html`<details onToggle=${toggle}><summary>Details</summary>
    ${isOpen && html`<dl class="activity-detail">${fields.map(([name, value]) => html`<div key=${name}><dt>${name.replaceAll('_', ' ')}</dt>
        <dd>${typeof value === 'object' ? html`<code>${JSON.stringify(value)}</code>` : String(value)}</dd></div>`)}</dl>
      ${orders.length > 0 && html`<p>Orders: ${orders.map((id) => html`<span key=${id}><${OrderLink} id=${id} /> </span>`)}</p>`}${children}`}
  </details>`;
}
