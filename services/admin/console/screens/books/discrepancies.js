// Books: what is wrong, and apart from that, what still moves.
import { post } from '../../lib/api.js';
import { counted, money, number } from '../../lib/format.js';
import { html } from '../../lib/html.js';
import { address, Link, route } from '../../lib/router.js';
import { Action, Command, confirmChange, Copy, OrderLink, Panel, Since, Time } from '../../lib/ui.js';
import { startCheck } from './check.js';
import { aboutOf, commandsOf, isId, orderOf, stepToAccept, titleOf } from './rules.js';

/** @typedef {import('../../types.js').Schemas} Schemas @typedef {Schemas['Report']} Report @typedef {Schemas['Discrepancy']} Discrepancy */

/** Discrepancies of one rule that are shown before only this rule is asked for. */
const FIRST = 5;

/** @param {string | null} rule */
function booksOf(rule) {
  return address('/books', { ...Object.fromEntries(route.value.query), rule });
}

/** @param {{ report: Report }} properties */
export function Wrong({ report }) {
  const wanted = route.value.query.get('rule');
  const rules = (report.by_rule ?? []).filter((one) => one.certain > 0);
  if (rules.length === 0) {
    const text = report.verdict === 'BALANCED' ? 'Nothing.'
       : 'Nothing is certain to be wrong. It can be told once all services answer and nothing is in flight.';
    return html`<${Panel} title="Wrong"><p>${text}</p>
      <p class="quiet">Each discrepancy would be here with its money, its orders and the commands that show or repair it.</p><//>`;
  }
  const shown = rules.some((one) => one.rule === wanted) ? rules.filter((one) => one.rule === wanted) : rules;
  const isWhole = shown.length < rules.length || rules.length === 1;
  const isSample = report.discrepancies.length < report.discrepancy_count;
  const title = html`Wrong <span class="badge">${number(report.discrepancy_count)}</span>`;
  const all = shown.length < rules.length && html`<${Link} href=${booksOf(null)}>Show ${counted(rules.length - shown.length, 'more kind')}<//>`;
  return html`<${Panel} title=${title} actions=${all}>
    ${isSample && html`
      <p class="warn">The report lists ${number(report.discrepancies.length)} of ${number(report.discrepancy_count)}. The counts are of all.</p>`}
    ${shown.map((one) => html`
      <${RuleSection} key=${one.rule} count=${one} found=${report.discrepancies.filter((found) => found.rule === one.rule)} isWhole=${isWhole} />`)}
  <//>`;
}

/** @param {{ count: Schemas['RuleCount'], found: Discrepancy[], isWhole: boolean }} properties */
function RuleSection({ count, found, isWhole }) {
  const { rule, certain, amounts = [] } = count;
  const listed = isWhole ? found : found.slice(0, FIRST);
  return html`<section class="books-rule">
    <h3>${titleOf(rule)} <small>${counted(certain, 'time')}
      ${amounts.length > 0 && html`, orders of ${amounts.map(money).join(' and ')}`} · rule: ${rule}</small></h3>
    <ul>${listed.map((one, index) => html`<${Found} key=${`${one.subject} ${one.detail} ${index}`} found=${one} />`)}</ul>
    ${listed.length < found.length && html`<p><${Link} href=${booksOf(rule)}>All ${number(found.length)} of this kind<//></p>`}
    ${found.length === 0 && html`<p class="quiet">None of them is in the sample of the report.</p>`}
  </section>`;
}

/** @param {{ found: Discrepancy }} properties */
function Found({ found }) {
  const commands = commandsOf(found), step = stepToAccept(found), about = aboutOf(found.rule), order = orderOf(found);
  return html`<li class="books-found">
    <div class="books-what"><${Subject} found=${found} /> <span>${found.detail}</span>
      ${about === 'service' && order && html`<span>of order <${OrderLink} id=${order} /></span>`}</div>
    <dl class="facts">
      ${found.difference && html`<div><dt>Difference</dt><dd>${found.difference}</dd></div>`}
      ${found.amount && html`<div><dt>Money in the order</dt><dd>${money(found.amount)}</dd></div>`}
      <div><dt>Since</dt>
        <dd>${found.since ? html`<${Time} at=${found.since} /> (<${Since} at=${found.since} />)` : html`<span class="quiet">not known</span>`}</dd></div>
    </dl>
    <details><summary>What to do</summary>
      <p>${found.advice}</p>
      ${commands.map((command) => html`<${Command} key=${command} command=${command} />`)}
      ${step && html`<p><${Action} needs="admin" onClick=${() => acceptBaseline(step, found)}>Accept as baseline<//></p>`}
    </details>
  </li>`;
}

/** @param {{ found: Discrepancy }} properties */
function Subject({ found }) {
  if (isId(found.subject)) return html`<span class="books-subject">Order <${OrderLink} id=${found.subject} /> <${Copy}
     text=${found.subject} label="Copy id" /></span>`;
  return html`<span class="books-subject">${aboutOf(found.rule) ?? ''} <b>${found.subject}</b></span>`;
}

/** @param {string} step @param {Discrepancy} found */
function acceptBaseline(step, found) {
  confirmChange({
    title: `Accept the baseline of ${step}`,
    effect: html`<p><code>${step}</code>: ${found.detail}${found.difference && html`, difference <b>${found.difference}</b>`}. 
      From now on this difference counts as right, although the step never processed these messages.
      ${step === 'admin-saga-view' && ' Facts before now are not looked for in the saga view any more.'}</p>
      <p>First publish the messages again, if the streams still have them: an accepted loss stays a loss.</p>
        <${Command} command='outbox republish --since TIME --reason "WHY"' />`,
    label: 'Accept', isReasonRequired: true, kind: 'danger',
    run: (reason) => post('/api/admin/reconciliation/baselines', { step, reason }),
    done: (/** @type {Schemas['Baseline']} */ baseline) => {
      startCheck({ full: false });
      return `Accepted ${counted(baseline.missed, 'message')} as missed by ${step}. Checking again…`;
    },
  });
}

/** @param {{ report: Report }} properties */
export function Moving({ report }) {
  const { in_flight: work, suspected, suspected_count: count } = report;
  if (work.length === 0 && count === 0) {
    return html`<${Panel} title="Still moving"><p>Nothing was in flight${report.unanswered.length > 0 && ' at the services that answered'}.</p>
      <p class="quiet">Unfinished work, and differences that it may still resolve, would be here. Nothing of that is to be repaired.</p><//>`;
  }
  return html`<${Panel} title="Still moving" class="books-moving">
    <p class="quiet">Nothing here is to be repaired. Check again when it has ended.</p>
    ${work.length > 0 && html`<div class="scroll"><table><thead><tr><th>Work in flight</th><th>Since</th><th>Ends with</th></tr></thead>
      <tbody>${work.map((one) => html`<tr key=${one.what}>
        <td>${one.what}</td><td>${one.since ? html`<${Since} at=${one.since} />` : '–'}</td><td>${one.waits_for}</td></tr>`)}</tbody></table></div>`}
    ${count > 0 && html`<details><summary>${counted(count, 'difference')} that this may resolve</summary><div class="scroll"><table>
      <thead><tr><th>About</th><th>Rule</th><th>Now</th><th class="right">Difference</th><th class="right">Money</th></tr></thead>
      <tbody>${suspected.map((one, index) => html`<tr key=${index}>
        <td>${isId(one.subject) ? html`<${OrderLink} id=${one.subject} />` : one.subject}</td><td>${one.rule}</td><td>${one.detail}</td>
          <td class="right">${one.difference ?? ''}</td><td class="right">${one.amount ? money(one.amount) : ''}</td></tr>`)}</tbody>
    </table></div>${suspected.length < count && html`<p class="quiet">The report lists ${number(suspected.length)} of ${number(count)}.</p>`}</details>`}
  <//>`;
}
