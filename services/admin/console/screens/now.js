// Now: is a human needed, for what, and what customers get.
import { post } from '../lib/api.js';
import { Chart } from '../lib/chart.js';
import { counted, duration, money, number } from '../lib/format.js';
import { html, useMemo } from '../lib/html.js';
import { isBrokerAway, overview, rates, seconds } from '../lib/live.js';
import { address, Link } from '../lib/router.js';
import { Action, Command, confirmChange, Countdown, Minutes, OrderLink, Panel, secondsOf, Since, Status, Time } from '../lib/ui.js';

/** @typedef {import('../types.js').Finding} Finding @typedef {import('../types.js').ServiceStatus} ServiceStatus */

export function Now() {
  const state = overview.value;
  if (!state) return html`<h1>Waiting for admin…</h1>`;
  const urgent = state.findings.filter((one) => !one.to_clean_up), leftOver = state.findings.filter((one) => one.to_clean_up);
  return html`
    <${Headline} findings=${urgent} unavailable=${state.unavailable} />
    ${urgent.length > 0 && html`<ol class="findings">${urgent.map((one) => html`<${FindingCard} key=${one.key} finding=${one} />`)}</ol>`}
    <div class="columns">
      <${Flow} sagas=${state.sagas} services=${state.services} />
      <${Services} services=${state.services} />
    </div>
    ${leftOver.length > 0 && html`<${Panel} title="To clean up, when there is time"><ol class="findings">${leftOver.map((one) => html`<${FindingCard} key=${one.key} finding=${one} />`)}</ol><//>`}`;
}

/** The one sentence. @param {{ findings: Finding[], unavailable: { what: string, problem: string }[] }} properties */
function Headline({ findings, unavailable }) {
  const missing = unavailable.map((one) => one.what).join(', ');
  if (findings.length === 0) {
    return missing ? html`<h1 class="headline">Nobody is needed, as far as is known. <small>Unknown: ${missing}</small></h1>`
      : html`<h1 class="headline good">Nobody is needed.</h1>`;
  }
  const first = findings.find((one) => one.urgent) ?? findings[0];
  const more = findings.length - 1;
  const atStake = [first.orders ? `${atLeast(first.orders_partial)}${counted(first.orders, 'order')}` : '', moneyOf(first)].filter(Boolean).join(', ');
  return html`<h1 class="headline bad">You are needed: ${first.text}</h1>
    ${(atStake || more > 0) && html`<p class="at-stake">${atStake && html`<b>${atStake}</b> at stake`}${first.deadline && html`, next cancellation in <${Countdown} at=${first.deadline} />`}
      ${more > 0 && html` <span class="quiet">and ${counted(more, 'more problem')}</span>`}</p>`}`;
}

/** @param {boolean | undefined} isPartial */
const atLeast = (isPartial) => (isPartial ? 'at least ' : '');

/** Money that a finding affects; empty without any. @param {Finding} finding */
const moneyOf = ({ amounts = [], amounts_partial: isPartial }) => (amounts.length > 0 ? `${atLeast(isPartial)}${amounts.map(money).join(', ')}` : '');

/** What a finding is about, as an address. @param {Finding} finding */
function causeOf(finding) {
  const subject = finding.key.slice(finding.code.length + 1);
  switch (finding.code) {
    case 'dead_letters': return address('/dead-letters', { fingerprint: subject });
    case 'more_dead_letters': case 'many_dead_letters': case 'replays_overdue': return '/dead-letters';
    case 'compensation_stuck': return address('/orders', { status: 'COMPENSATION_STUCK' });
    case 'sagas_overdue': return address('/orders', { overdue: true });
    case 'ledgers_unbalanced': case 'reconciliation_incomplete': return '/books';
    default: return null;
  }
}

/** The step whose waiting orders a finding's command extends. @param {Finding} finding */
const stepToExtend = (finding) => finding.commands.map((command) => /^saga extend --stuck-at (\S+)/.exec(command)?.[1]).find(Boolean);

/** @param {{ finding: Finding }} properties */
function FindingCard({ finding }) {
  const cause = causeOf(finding), step = stepToExtend(finding);
  const orders = finding.orders ?? null, cancelled = finding.cancelled_orders ?? null;
  return html`<li class=${`finding ${finding.urgent ? 'urgent' : ''}`}>
    <h2>${finding.text}</h2>
    <dl class="facts">
      ${finding.since && html`<div><dt>Since</dt><dd><${Time} at=${finding.since} /> (<${Since} at=${finding.since} />)</dd></div>`}
      ${orders !== null && html`<div><dt>Orders that wait</dt><dd>${atLeast(finding.orders_partial)}${number(orders)}</dd></div>`}
      ${cancelled !== null && html`<div><dt>Cancelled, not undone</dt><dd>${number(cancelled)}</dd></div>`}
      ${moneyOf(finding) && html`<div><dt>Money</dt><dd>${moneyOf(finding)}</dd></div>`}
      ${finding.deadline && html`<div><dt>Next cancellation in</dt><dd><${Countdown} at=${finding.deadline} /></dd></div>`}
    </dl>
    ${finding.acknowledged && html`<p class="acknowledged"><b>${finding.acknowledged.operator}</b> works on it until <${Time} at=${finding.acknowledged.until} />${finding.acknowledged.reason ? `: ${finding.acknowledged.reason}` : ''}</p>`}
    ${finding.explanation.split('\n').map((line) => html`<p key=${line}>${line}</p>`)}
    <footer>
      ${cause && html`<${Link} class="button" href=${cause}>Open the cause<//>`}
      ${step && html`<${Action} onClick=${() => extend(step, orders)}>Extend the deadlines<//>`}
      <${Action} onClick=${() => acknowledge(finding)}>${finding.acknowledged ? 'Change who works on it' : 'I work on it'}<//>
      <details><summary>${counted(finding.commands.length, 'command')}</summary>${finding.commands.map((command) => html`<${Command} key=${command} command=${command} />`)}</details>
    </footer>
  </li>`;
}

/** @param {Finding} finding */
function acknowledge(finding) {
  confirmChange({
    title: 'I work on it',
    effect: html`<p>${finding.text}</p><p>Others see that you work on it. Nobody is reminded of it meanwhile, unless it becomes much worse.</p>`,
    fields: html`<${Minutes} label="Minutes from now; 0 says that nobody works on it any more" least=${0} most=${10_080} value=${30} />`,
    label: 'Save',
    run: (reason, values) => post('/api/admin/findings/acknowledge', { key: finding.key, seconds: secondsOf(values), ...(reason ? { reason } : {}) }),
    done: ({ acknowledged }) => (acknowledged ? `You work on it until ${new Date(acknowledged.until).toLocaleTimeString('en-GB')}` : 'Nobody works on it'),
  });
}

/** @param {string} step @param {number | null} orders */
function extend(step, orders) {
  confirmChange({
    title: 'Extend the deadlines',
    effect: html`<p>Every order that waits for <code>${step}</code>${orders !== null && html` (now ${counted(orders, 'order')})`} gets more time before it is cancelled.</p>`,
    fields: html`<${Minutes} />`,
    label: 'Extend', isReasonRequired: true,
    run: (reason, values) => post('/api/admin/sagas/extend', { stuck_at: step, seconds: secondsOf(values), reason }),
    done: (answer) => `Asked to extend ${counted(answer.done, 'order')}`,
  });
}

/** @param {{ sagas?: import('../types.js').Schemas['SagaSummary'] | null, services: ServiceStatus[] }} properties */
function Flow({ sagas, services }) {
  const counts = seconds.value;
  // Of ten seconds each: single seconds are noise.
  const data = useMemo(() => tens(counts), [counts]);
  const { duration: took, duration_an_hour_ago: before, seconds: ended } = rates.value ?? {};
  const last = isBrokerAway.value ? [] : counts.slice(-60), perSecond = (/** @type {'started' | 'completed' | 'compensated'} */ what) => (last.length > 0 ? (last.reduce((sum, one) => sum + one[what], 0) / last.length).toFixed(1) : '–');
  const waiting = Object.entries(sagas?.waiting ?? {}).filter(([, orders]) => orders > 0);
  const inFlight = services.find((one) => one.in_flight !== undefined && one.in_flight !== null)?.in_flight;
  const outbox = services.flatMap((one) => (one.outbox?.oldest ? [{ service: one.service, oldest: one.outbox.oldest }] : [])).sort((one, other) => one.oldest.localeCompare(other.oldest))[0];
  return html`<${Panel} title="Orders">
    <dl class="tiles">
      <div><dt>Placed per second</dt><dd>${perSecond('started')}</dd></div>
      <div><dt>Confirmed per second</dt><dd>${perSecond('completed')}</dd></div>
      <div><dt>Compensated per second</dt><dd>${perSecond('compensated')}</dd></div>
      <div><dt>In flight</dt><dd>${number(inFlight)}</dd></div>
      <div><dt>Next cancellation in</dt><dd><${Countdown} at=${sagas?.next_deadline} /></dd></div>
      <div><dt>Until confirmed, p50</dt><dd>${took ? duration(took.p50_us / 1000) : '–'} <small>${before ? `an hour ago ${duration(before.p50_us / 1000)}` : ''}</small></dd></div>
      <div><dt>p99</dt><dd>${took ? duration(took.p99_us / 1000) : '–'} <small>${before ? `an hour ago ${duration(before.p99_us / 1000)}` : ''}</small></dd></div>
      <div><dt>Oldest in flight</dt><dd>${sagas?.oldest ? html`<${OrderLink} id=${sagas.oldest.id} /> <small>${sagas.oldest.waits_for ?? ''}</small>` : '–'}</dd></div>
      <div><dt>Oldest outbox entry</dt><dd>${outbox ? html`<${Since} at=${outbox.oldest} /> <small>${outbox.service}</small>` : '–'}</dd></div>
    </dl>
    ${rates.value && ended === undefined ? html`<p class="quiet">This replica of admin does not consume messages, so it counts no orders. Its leader does.</p>`
      : html`<${Chart} label="Orders placed, confirmed and compensated per second in the last ten minutes" data=${data}
          series=${[{ label: 'placed', colour: '--blue' }, { label: 'confirmed', colour: '--green' }, { label: 'compensated', colour: '--orange' }]} />`}
    ${waiting.length > 0 && html`<h3>Orders by the step that they wait for</h3><ul class="counts">${waiting.map(([step, orders]) => html`<li key=${step}>
      <${Link} href=${address('/orders', { stuck_at: step })}>${step}<//> <b>${number(orders)}</b></li>`)}</ul>`}
  <//>`;
}

/** Counts per second, averaged over ten seconds. @param {import('../types.js').SecondCounts[]} counts @returns {number[][]} */
function tens(counts) {
  /** @type {number[][]} */
  const columns = [[], [], [], []];
  for (let first = counts.length % 10; first + 10 <= counts.length; first += 10) {
    const ten = counts.slice(first, first + 10);
    const mean = (/** @type {'started' | 'completed' | 'compensated'} */ what) => ten.reduce((sum, one) => sum + one[what], 0) / 10;
    columns[0].push(ten[9].second);
    columns[1].push(mean('started'));
    columns[2].push(mean('completed'));
    columns[3].push(mean('compensated'));
  }
  return columns;
}

/** @param {ServiceStatus} service */
const stateOf = (service) => (!service.ready ? 'down' : service.degraded ? 'degraded' : 'ok');

/** What the lights of a service show: its broker, database and disk. */
const LIGHTS = { broker: ['broker', 'publish_stall', 'consumer_stall'], database: ['database', 'store'], disk: ['disk'] };

/** @param {{ services: ServiceStatus[] }} properties */
function Services({ services }) {
  return html`<${Panel} title="Services">
    <div class="scroll"><table>
      <thead><tr><th>Service</th><th>State</th>${Object.keys(LIGHTS).map((name) => html`<th key=${name}>${name}</th>`)}<th class="right">Unpublished</th><th class="right">Waiting</th><th class="right">Retries</th><th class="right">Calls</th></tr></thead>
      <tbody>${services.map((service) => html`<${ServiceRow} key=${service.service} service=${service} />`)}</tbody>
    </table></div>
    ${services.some((one) => (one.faults ?? []).length > 0) && html`<p class="warn">Injected faults: ${services.flatMap((one) => (one.faults ?? []).map((fault) => `${fault.kind} at ${fault.step ?? one.service}`)).join(', ')}</p>`}
  <//>`;
}

/** @param {{ service: ServiceStatus }} properties */
function ServiceRow({ service }) {
  const checks = service.checks ?? {};
  const light = (/** @type {string[]} */ names) => {
    const known = names.map((name) => checks[name]).filter(Boolean);
    if (known.length === 0) return { tone: 'neutral', text: 'unknown' };
    const worst = known.find((one) => one.state === 'failed') ?? known.find((one) => one.state !== 'ok');
    return { tone: !worst ? 'good' : worst.state === 'failed' ? 'bad' : 'warn', text: worst?.text ?? 'ok' };
  };
  const waiting = (service.steps ?? []).reduce((/** @type {number | null} */ sum, step) => (sum === null || step.waiting === undefined || step.waiting === null ? null : sum + step.waiting), 0);
  const problems = service.problem ? [service.problem] : (service.failing_checks ?? []).map((one) => one.text);
  return html`<tr>
      <th scope="row">${service.service}</th>
      <td><${Status} status=${stateOf(service)} /></td>
      ${Object.entries(LIGHTS).map(([name, names]) => { const { tone, text } = light(names); return html`<td key=${name}><i class=${`light ${tone}`} role="img" aria-label=${`${name}: ${text}`} title=${text}></i></td>`; })}
      <td class="right">${number(service.outbox?.pending)}</td><td class="right">${number(waiting)}</td><td class="right">${number(service.retries)}</td><td class="right">${number(service.tasks?.open)}</td>
    </tr>
    ${problems.length > 0 && html`<tr class="detail"><td colspan="9">${problems.map((text) => html`<p key=${text}>${text}</p>`)}</td></tr>`}
    ${(service.breakers ?? []).map((breaker) => html`<tr class="detail" key=${breaker.name}><td colspan="9"><p>Breaker ${breaker.name}: <${Status} status=${breaker.state} /> since <${Time} at=${breaker.since} />${breaker.why ? `: ${breaker.why}` : ''}</p></td></tr>`)}`;
}
