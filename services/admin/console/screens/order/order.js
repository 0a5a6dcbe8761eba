// Order: what happened to one order and its money, what is still owed, and what an operator can do.
import { get, session } from '../../lib/api.js';
import { counted, inWords, isUuid, money } from '../../lib/format.js';
import { html, useEffect, useId, useRef } from '../../lib/html.js';
import { serverNow } from '../../lib/live.js';
import { address, go, Link, route } from '../../lib/router.js';
import { Copy, Countdown, Failure, Id, isNotFound, Panel, Since, Status, Time, useLoaded } from '../../lib/ui.js';
import { Actions } from './actions.js';
import { Diagram } from './diagram.js';
import { Facts } from './facts.js';
import { verdictOf } from './money.js';
import { proofOf } from './proof.js';
import { Records, Stock } from './records.js';
import { momentsOf } from './story.js';

/** @typedef {import('./story.js').Known} Known @typedef {import('./story.js').SagaDetail} SagaDetail
 * @typedef {import('./money.js').Verdict} Verdict */

/** Milliseconds until an open order is read again. */
const OPEN_REFRESH = 1_000;
/** The same of an order that has ended: a refund by an operator may follow. */
const ENDED_REFRESH = 15_000;
/** Milliseconds for which what stands beside the facts is kept while no fact comes. */
const BESIDE_REFRESH = 5_000;
/** Dead letters of one order that are read. */
const MAX_DEAD_LETTERS = 20;

/** @param {Error} problem */
const text = (problem) => problem.message;

/** What other services and admin know beside the facts. @param {SagaDetail} saga @param {AbortSignal} abort */
async function readBeside(saga, abort) {
  /** @type {string[]} */
  const problems = [];
  /** @template T @param {string} what @param {Promise<T>} reading @param {T} otherwise */
  const orElse = (what, reading, otherwise) => reading.catch((problem) => { problems.push(`${what}: ${text(problem)}`); return otherwise; });
  let paymentProblem = /** @type {unknown} */ (null);
  const ids = [...new Set(saga.timeline.flatMap(({ detail }) => (detail.dead_lettered ? [detail.dead_lettered.dead_letter] : [])))];
  if (ids.length > MAX_DEAD_LETTERS) problems.push(`${MAX_DEAD_LETTERS} of ${ids.length} dead letters were read`);
  // Before these facts, payment knows nothing of the order.
  const mayBePaid = saga.timeline.some(({ type }) => type === 'StockReserved' || type === 'OrderCancelled');
  const [payment, records, log, deadLetters] = await Promise.all([
    mayBePaid && get(`/api/admin/payments/${saga.id}`, abort).catch((problem) => { if (!isNotFound(problem)) paymentProblem = problem; return null; }),
    orElse('the records', get(`/api/admin/sagas/${saga.id}/records`, abort).then((answer) => answer.records), []),
    orElse('the audit log', get(address('/api/admin/audit', { target: saga.id, limit: 200 }), abort).then((page) => page.entries), []),
    Promise.all(ids.slice(0, MAX_DEAD_LETTERS).map((id) => orElse(`dead letter ${id}`, get(`/api/admin/dlq/${id}`, abort), null))),
  ]);
  // What was not read to its end is no answer.
  abort.throwIfAborted();
  if (paymentProblem) problems.push(`the payment: ${text(/** @type {Error} */ (paymentProblem))}`);
  return { payment: payment || null, paymentProblem, records, log, deadLetters: deadLetters.filter((one) => one !== null), problems };
}

/** Reads an order; what stands beside the facts less often than the facts. @param {string} id */
function useOrder(id) {
  const beside = useRef({ facts: '', at: 0, known: /** @type {any} */ (null) });
  const { data, problem, reload } = useLoaded(id, async (abort) => {
    const saga = /** @type {SagaDetail} */ (await get(`/api/admin/sagas/${encodeURIComponent(id)}`, abort));
    const facts = JSON.stringify(saga);
    const isCurrent = beside.current.facts === facts && Date.now() - beside.current.at <= BESIDE_REFRESH;
    if (!isCurrent) beside.current = { facts, at: Date.now(), known: await readBeside(saga, abort) };
    const isPaid = saga.timeline.some((fact) => fact.type === 'PaymentProcessed');
    return /** @type {Known} */ ({ saga, isPaid, ...beside.current.known });
  });
  const isOpen = data?.saga.waits_since !== undefined;
  useEffect(() => {
    if (!data && !problem) return undefined;
    const timer = setTimeout(reload, !data ? BESIDE_REFRESH : isOpen ? OPEN_REFRESH : ENDED_REFRESH);
    return () => clearTimeout(timer);
  }, [data, problem]);
  return { known: data, problem, reload };
}

/** @param {{ id: string }} properties */
export function Order({ id }) {
  if (isUuid(id)) return html`<${OrderWithId} id=${id} />`;
  return html`<h1>${id} is no order id</h1><p>An order id is a UUID, such as 01a22307-2a79-7572-ab53-27c63fa25f1d. <${Link} href="/orders">All orders<//></p>`;
}

/** @param {{ id: string }} properties */
function OrderWithId({ id }) {
  const { known, problem, reload } = useOrder(id);
  if (!known) return html`<h1>Order <span class="id">${id}</span></h1><${Unread} problem=${problem} />`;
  const { saga } = known, moments = momentsOf(known, serverNow.value), verdict = verdictOf(known);
  return html`
    <header class="order-head">
      <h1>Order <span class="id">${saga.id}</span></h1><${Copy} text=${saga.id} label="Copy id" />
      <p><${Status} status=${saga.status} />${saga.overdue && html` <span class="status bad">overdue</span>`}
        ${' '}${saga.customer}, ${money(saga.total)}${saga.cancelled_because && `, cancelled because ${inWords(saga.cancelled_because)}`}</p>
      <${Actions} saga=${saga} verdict=${verdict} reload=${reload} />
    </header>
    <${Failure} problem=${problem} />
    ${known.problems.length > 0 && html`<p class="warn" role="status">Not everything could be read. ${known.problems.join('; ')}</p>`}
    <${Body} known=${known} moments=${moments} verdict=${verdict} />`;
}

/** Why nothing is shown. @param {{ problem: unknown }} properties */
function Unread({ problem }) {
  if (!problem) return html`<p class="loading">Loading…</p>`;
  if (!isNotFound(problem)) return html`<${Failure} problem=${problem} />`;
  return html`<p>Admin knows no such order. One that was placed just now appears by itself, once admin has consumed its first fact.
    One that ended long ago may be purged.</p><p><${Link} href="/orders">All orders<//></p>`;
}

/** @param {{ known: Known, moments: import('./story.js').Moment[], verdict: Verdict }} properties */
function Body({ known, moments, verdict }) {
  const tableId = useId(), { saga } = known;
  const toScale = route.value.query.get('time') === 'scale';
  const choose = (/** @type {string} */ time) => go(address(route.value.path, { time }), { replace: true });
  const spacing = html`<div class="switch" role="group" aria-label="Distances in the diagram">
    <button type="button" aria-pressed=${!toScale} onClick=${() => choose('')}>Even</button>
    <button type="button" aria-pressed=${toScale} onClick=${() => choose('scale')}>Time to scale</button>
  </div>`;
  const source = { system: session.value?.system ?? 'admin', readAt: serverNow.value };
  return html`<div class="order-columns"><div class="order-main">
      <${Panel} title="What happened" actions=${spacing}>
        <${Diagram} moments=${moments} saga=${saga} toScale=${toScale} describedBy=${tableId} />
        <p class="quiet">Arrows lead from the service that published a fact to those that consume it; admin consumes all. Dashed: calls, and what the
          customer can see. Bars: work, from its cause to its fact.${toScale && ' Distances grow with time; short ones are widened to be readable.'}</p>
      <//>
      <${Panel} title=${counted(saga.timeline.length, 'fact')}><${Facts} id=${tableId} moments=${moments} raw=${known} /><//>
      <${Records} records=${known.records} />
      </div>
      <div class="order-side">
        <${Money} known=${known} verdict=${verdict} />
        <${Stock} records=${known.records} />
        ${saga.remaining.length > 0 && html`<${StillOwed} saga=${saga} />`}
        <${About} known=${known} />
        <${Panel} title="Proof" actions=${html`<${Copy} text=${proofOf(known, moments, source)} label="Copy proof" />`}>
          <p class="quiet">What happened to the order and its money as plain text, for support and the customer. Times are in UTC.</p>
        <//>
      </div>
    </div>`;
}

/** What payment says. @param {Known} known */
function paymentState({ payment, paymentProblem }) {
  if (!payment) return paymentProblem ? 'unknown' : 'no payment';
  return html`${inWords(payment.status)}${payment.failure && html` <small>${inWords(payment.failure)}</small>`}`;
}

/** What the bank says. @param {Known} known */
function bankState({ payment, paymentProblem }) {
  if (payment?.charge) return html`${inWords(payment.charge.status)} <small><${Id} id=${payment.charge.id} /></small>`;
  if (payment?.bank_problem) return html`unknown <small>${payment.bank_problem}</small>`;
  return paymentProblem ? 'unknown' : 'no charge';
}

/** @param {{ known: Known, verdict: Verdict }} properties */
function Money({ known, verdict }) {
  const { saga, payment } = known;
  return html`<${Panel} title="Money" class="money">
    <p class=${`verdict ${verdict.tone}`}>${verdict.text}</p>
    <table><tbody>
      <tr><th scope="row">Ordered</th><td class="right">${money(saga.total)}</td><td></td></tr>
      <tr><th scope="row">Payment says</th><td class="right">${money(payment?.amount)}</td><td>${paymentState(known)}</td></tr>
      <tr><th scope="row">The bank says</th><td class="right">${money(payment?.charge?.amount)}</td><td>${bankState(known)}</td></tr>
      <tr><th scope="row">They agree</th><td colspan="2">${verdict.agreement}</td></tr>
    </tbody></table>
  <//>`;
}

/** @param {{ saga: SagaDetail }} properties */
function StillOwed({ saga }) {
  return html`<${Panel} title="Still owed">
    <ol class="owed">${saga.remaining.map((one, index) => html`<li key=${one.step}><b>${one.owner}</b>: ${one.fact} <small>${one.step}</small>
      ${(index === 0 || saga.cancelled_because) && html`<br />for <${Since} at=${saga.waits_since} />
        ${saga.waits_until && html`, cancelled in <${Countdown} at=${saga.waits_until} />`}`}</li>`)}</ol>
  <//>`;
}

/** @param {{ known: Known }} properties */
function About({ known }) {
  const { saga, deadLetters } = known, { manual_resolution: resolution } = saga;
  const statusOf = new Map(deadLetters.map((one) => [one.id, one.status]));
  const letters = saga.timeline.flatMap(({ detail }) => (detail.dead_lettered ? [detail.dead_lettered] : []));
  const unique = [...new Map(letters.map((one) => [one.dead_letter, one])).values()];
  return html`<${Panel} title="Order"><dl class="about">
    <div><dt>Customer</dt><dd>${saga.customer ? html`<${Link} href=${address('/orders', { customer: saga.customer })}>${saga.customer}<//>` : '–'}</dd></div>
    <div><dt>Deadline</dt><dd><${Time} at=${saga.deadline} />${saga.waits_until && html` in <${Countdown} at=${saga.waits_until} />`}</dd></div>
    <div><dt>Last fact</dt><dd><${Time} at=${saga.timeline.at(-1)?.occurred_at} exact /></dd></div>
    ${unique.length > 0 && html`<div><dt>Dead letters</dt><dd>${unique.map(({ dead_letter: letter, step }) => html`<div key=${letter}>
      <${Link} href=${`/dead-letters/${letter}`}>${step}<//> ${statusOf.has(letter) && html`<${Status} status=${statusOf.get(letter)} />`}</div>`)}</dd></div>`}
    ${resolution && html`<div><dt>Resolved manually</dt><dd>by ${resolution.operator} at <${Time} at=${resolution.at} />: ${resolution.reason}
      <ul>${resolution.accepted.map(({ rule, detail, difference }) => html`
        <li key=${rule}>accepted: ${rule}, ${detail}${difference && ` (${difference})`}</li>`)}</ul></dd></div>`}
  </dl><//>`;
}
