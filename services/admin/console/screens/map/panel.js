// The side panel: everything about the selected arrow or service.
import { get } from '../../lib/api.js';
import { counted, duration, number } from '../../lib/format.js';
import { html, useEffect, useRef } from '../../lib/html.js';
import { address, go, Link } from '../../lib/router.js';
import { DeadLettersLink, Failure, Since, Status, useLoaded } from '../../lib/ui.js';
import { BreakerPart } from './breaker.js';
import { mapAddress, noteText } from './figures.js';
import { BreakIt } from './inject.js';
import { arrowState, callState, serviceState } from './state.js';
import { BANK_CALL, SERVICES, stepNamed, stepsOf } from './topology.js';

/** @typedef {import('../../types.js').Schemas} Schemas @typedef {import('./state.js').Overview} Overview @typedef {import('./state.js').Note} Note */
/** @typedef {import('./figures.js').Selection} Selection */
/** @typedef {{ step: string, subjects: string[], handled: number, retrying: number, dead: number }} StepStats */
/** @typedef {Omit<Schemas['ServiceState'], 'service_stats'> & { service_stats?: { instance: string, steps: StepStats[] } }} Detail */
/** @typedef {{ services: Detail[], breakers: Schemas['ServiceBreakers'][] }} Details */
/** @typedef {{ overview: Overview, details: Details | null, disabled: string[], reload: () => void }} Known */

/** Milliseconds between two reads of what the overview does not have. */
const REFRESH = 3_000;

/** @param {{ overview: Overview, selected: Selection, disabled: string[], reloadFaults: () => void }} properties */
export function SidePanel({ overview, selected, disabled, reloadFaults }) {
  const heading = useRef(/** @type {HTMLHeadingElement | null} */ (null)), isFirst = useRef(true);
  const { data, problem, reload } = useLoaded('map details', async (abort) => {
    const [services, breakers] = await Promise.all([get('/api/admin/services', abort), get('/api/admin/breakers', abort)]);
    return /** @type {Details} */ ({ services, breakers });
  }, REFRESH);
  const close = () => {
    const opener = /** @type {HTMLElement | null} */ (document.querySelector(`[data-at="${CSS.escape(`${selected.kind}=${selected.name}`)}"]`));
    go(mapAddress(null));
    opener?.focus();
  };
  useEffect(() => {
    // A reload keeps the focus at the top of the page.
    if (!isFirst.current || document.activeElement?.closest('[data-at]')) heading.current?.focus();
    isFirst.current = false;
  }, [selected.kind, selected.name]);
  const known = { overview, details: data, disabled, reload: () => { reload(); reloadFaults(); } };
  return html`<aside class="panel side" aria-label="Details" onKeyDown=${(/** @type {KeyboardEvent} */ event) => { if (event.key === 'Escape') close(); }}>
    <header><h2 ref=${heading} tabindex="-1">${selected.kind === 'call' ? 'calls of the bank' : selected.name}</h2><button type="button" class="plain"
      onClick=${close}>Close</button></header>
    <${Failure} problem=${problem} />
    <${Content} selected=${selected} known=${known} />
  </aside>`;
}

/** @param {{ selected: Selection, known: Known }} properties */
function Content({ selected, known }) {
  if (selected.kind === 'step' && stepNamed(selected.name)) return html`<${StepPart} key=${selected.name} name=${selected.name} known=${known} />`;
  if (selected.kind === 'service' && SERVICES.some((one) => one.name === selected.name)) return html`<${ServicePart} key=${selected.name}
    name=${selected.name} known=${known} />`;
  if (selected.kind === 'call' && selected.name === BANK_CALL.name) return html`<${CallPart} known=${known} />`;
  return html`<p>Nothing of this name is on the map.</p>`;
}

/** @param {Known} known @param {string} service @param {string} name */
function breakerOf({ details }, service, name) {
  const at = details?.breakers.find((one) => one.service === service);
  return { breaker: at?.breakers.find((one) => one.name === name), problem: at?.problem };
}

/** @param {{ notes: Note[] }} properties */
const Notes = ({ notes }) => (notes.length > 0 ? html`<p>${notes.map((note) => html`<span key=${note.text} class=${`note ${note.tone}`}>${noteText(note)}
  </span> `)}</p>` : null);

/** What a service says is wrong with it. @param {{ status: import('../../types.js').ServiceStatus | undefined }} properties */
function Errors({ status }) {
  if (!status) return html`<p class="quiet">Unknown: the overview lacks this service.</p>`;
  if (status.problem) return html`<p class="failure">${status.problem}</p>`;
  const failing = status.failing_checks ?? [];
  if (failing.length === 0) return html`<p class="quiet">No check of ${status.service} finds a problem.</p>`;
  return html`<ul class="plain-list">${failing.map((one) => html`<li key=${one.check}><${Status} status=${one.failed ? 'down' : 'degraded'} /> <b>${one.check}
    </b> for <${Since} at=${one.since} />: ${one.text}</li>`)}</ul>`;
}

/** Row of the facts; what is missing is unknown. @param {{ term: string, children?: any }} properties */
const Fact = ({ term, children }) => html`<div><dt>${term}</dt><dd>${children === null || children === undefined || children === false ? html`<span
  class="quiet">unknown</span>` : children}</dd></div>`;

/** Pending dead letters of a step, with a link; the overview has only the largest groups. @param {Overview} overview @param {string} step */
function deadLettersOf({ dead_letters: dead }, step) {
  if (!dead) return null;
  const count = (/** @type {typeof dead.groups} */ groups) => groups.reduce((sum, one) => sum + one.count, 0);
  const isPartial = count(dead.groups) < dead.pending;
  return html`<${DeadLettersLink} filter=${{ step }}>${isPartial ? 'at least ' : ''}${number(count(dead.groups.filter((one) => one.step === step)))}<//>`;
}

/** @param {{ name: string, known: Known }} properties */
function StepPart({ name, known }) {
  const step = /** @type {import('./topology.js').Step} */ (stepNamed(name)), { overview, details } = known;
  const arrow = arrowState(overview, step), status = overview.services.find((one) => one.service === step.owner);
  const stats = details?.services.find((one) => one.service === step.owner)?.service_stats?.steps.find((one) => one.step === name);
  const { breaker, problem } = breakerOf(known, step.owner, name), needed = step.needs ? breakerOf(known, step.owner, step.needs) : null;
  return html`<p>${step.about}. Consumer of ${step.owner}, from the stream of ${step.from.join(', ')}
      ${stats && html`: ${stats.subjects.map((subject, index) => html`${index > 0 && ', '}<code>${subject}</code>`)}`}.</p>
    <${Notes} notes=${arrow.notes} />
    <dl class="rows">
      <${Fact} term="Messages waiting">${arrow.waiting !== null && number(arrow.waiting)}<//>
      ${step.isOfSaga && html`<${Fact} term="Orders stuck at it">${arrow.orders !== null && html`<${Link} href=${address('/orders', { stuck_at: name })}>
        ${number(arrow.orders)}<//>`}<//>`}
      ${arrow.took ? html`<${Fact} term="Takes, p50">${duration(arrow.took.p50_us / 1000)}<//><${Fact} term="Takes, p99">
        ${duration(arrow.took.p99_us / 1000)} <small>of ${counted(arrow.took.sagas, 'order')}</small><//>`
        : step.isOfSaga && html`<${Fact} term="Takes, p50 and p99" />`}
      <${Fact} term="Retries scheduled">${stats && number(stats.retrying)}<//>
      <${Fact} term="Processed">${stats && number(stats.handled)}<//>
      <${Fact} term="Dead letters">${deadLettersOf(overview, name)}<//>
    </dl>
    ${step.isOfSaga && html`<p class="actions"><${Link} class="button" href=${address('/orders', { stuck_at: name })}>Orders stuck here<//><${Link}
      class="button" href=${address('/dead-letters', { step: name })}>Dead letters<//></p>`}
    <h3>Errors of <${Link} href=${mapAddress({ kind: 'service', name: step.owner })}>${step.owner}<//></h3><${Errors} status=${status} />
    <${BreakerPart} service=${step.owner} breaker=${breaker} problem=${problem} what=${`attempts of ${name}`} reload=${known.reload} />
    ${needed && html`<p>It also waits while the breaker <${Link} href=${mapAddress({ kind: 'call', name: BANK_CALL.name })}>${step.needs}
      <//> is open${needed.breaker && html`: <${Status} status=${needed.breaker.state} />`}</p>`}
    <${BreakIt} service=${step.owner} step=${name} disabled=${known.disabled} reload=${known.reload} />`;
}

/** @param {{ name: string, known: Known }} properties */
function ServicePart({ name, known }) {
  const service = serviceState(known.overview, name), { status } = service, detail = known.details?.services.find((one) => one.service === name);
  const about = SERVICES.find((one) => one.name === name)?.about, steps = stepsOf(name), tasks = status?.tasks;
  return html`<p>${about}.</p>
    <p><${Status} status=${service.state === 'ready' ? 'ok' : service.state} /> ${status?.version && html`<small>version ${status.version}</small>`}</p>
    <${Notes} notes=${service.notes} />
    <${Errors} status=${status} />
    <dl class="rows">
      <${Fact} term="Outbox, unpublished">${status?.outbox && number(status.outbox.pending)}<//>
      ${status?.outbox?.oldest && html`<${Fact} term="Oldest entry"><${Since} at=${status.outbox.oldest} /><//>`}
      ${status?.outbox && status.outbox.failed > 0 && html`<${Fact} term="Rejected or blocked entries">${number(status.outbox.failed)}<//>`}
      <${Fact} term="Retries">${status?.retries !== undefined && html`${number(status.retries)}
        ${status.retrying_since && html` <small>the oldest for <${Since} at=${status.retrying_since} /></small>`}`}<//>
      <${Fact} term="Open calls">${tasks && html`${number(tasks.open)}${tasks.oldest && html` <small>the oldest for <${Since} at=${tasks.oldest} />
        </small>`}`}<//>
      ${name === 'order' && html`<${Fact} term="Orders in flight">${status?.in_flight !== undefined && status.in_flight !== null && number(status.in_flight)}
        <//>`}
      ${name !== 'admin' && html`<${Fact} term="Instance that answered">${detail?.service_stats?.instance}<//>`}
      <${Fact} term="Replicas and leader" />
    </dl>
    ${steps.length > 0 && html`<h3>Steps</h3><ul class="plain-list">${steps.map((step) => {
      const arrow = arrowState(known.overview, step);
      return html`<li key=${step.step}><${Link} href=${mapAddress({ kind: 'step', name: step.step })}>${step.step}<//> <small>
        ${arrow.waiting === null ? 'unknown' : `${number(arrow.waiting)} waiting`}</small>${arrow.notes.map((note) => html` <span key=${note.text}
        class=${`note ${note.tone}`}>${noteText(note)}</span>`)}</li>`;
    })}</ul>`}
    ${name === BANK_CALL.owner && html`<p><${Link} href=${mapAddress({ kind: 'call', name: BANK_CALL.name })}>Calls of the bank, and their breaker<//></p>`}
    <${BreakIt} service=${name} disabled=${known.disabled} reload=${known.reload} />`;
}

/** @param {{ known: Known }} properties */
function CallPart({ known }) {
  const { overview } = known, call = callState(overview), bank = overview.services.find((one) => one.service === 'bank');
  const payment = overview.services.find((one) => one.service === BANK_CALL.owner);
  const { breaker, problem } = breakerOf(known, BANK_CALL.owner, BANK_CALL.name), ledger = payment?.bank_ledger;
  return html`<p>${BANK_CALL.about}, after the commit, as the tasks ${BANK_CALL.tasks.map((task, index) => html`${index > 0 && ' and '}<code>${task}
    </code>`)}.</p>
    <${Notes} notes=${call.notes} />
    ${ledger?.rejected && html`<p class="failure">${ledger.rejected.why}</p>`}
    <dl class="rows">
      <${Fact} term="Open calls">${call.waiting !== null && number(call.waiting)}<//>
      ${payment?.tasks?.oldest && html`<${Fact} term="Oldest open call"><${Since} at=${payment.tasks.oldest} /><//>`}
      ${BANK_CALL.tasks.map((task) => html`<${Fact} key=${task} term=${`Dead letters of ${task}`}>${deadLettersOf(overview, task)}<//>`)}
    </dl>
    <h3>Errors of the <${Link} href=${mapAddress({ kind: 'service', name: 'bank' })}>bank<//></h3><${Errors} status=${bank} />
    <${BreakerPart} service=${BANK_CALL.owner} breaker=${breaker} problem=${problem} what="calls to the bank" reload=${known.reload} />
    <${BreakIt} service="bank" disabled=${known.disabled} reload=${known.reload} />`;
}
