// Orders: which sagas there are, and which of them need attention.
import { get } from '../../lib/api.js';
import { counted, inWords, isUuid, money, number } from '../../lib/format.js';
import { html, useEffect, useId, useRef, useState } from '../../lib/html.js';
import { overview } from '../../lib/live.js';
import { address, go, Link, route } from '../../lib/router.js';
import { Countdown, Failure, OrderLink, Since, Status, Time, useLoaded } from '../../lib/ui.js';
import { heldInPlace } from './held.js';

/** @typedef {import('../../types.js').Schemas} Schemas @typedef {Schemas['SagaItem']} SagaItem @typedef {Schemas['SagaPage']} SagaPage */

/** Milliseconds between two loads of the first page. */
const REFRESH = 3_000;
const PAGE_SIZE = 50;
/** Milliseconds without a key after which a text filters. */
const TYPING = 400;
const FILTERS = ['status', 'overdue', 'stuck_at', 'customer', 'text'];
/** @type {Schemas['SagaStatus'][]} */
const STATUSES = [
  'STARTED', 'IN_PROGRESS', 'DEAD_LETTERED', 'TIMED_OUT', 'COMPENSATING', 'COMPENSATION_STUCK', 'COMPLETED', 'COMPENSATED', 'RESOLVED_MANUALLY', 'UNKNOWN',
];

/** Filters in the address. @returns {Record<string, string>} */
const filters = () => Object.fromEntries(FILTERS.flatMap((name) => { const value = route.value.query.get(name); return value ? [[name, value]] : []; }));

/** Shows other orders, from the first page on. @param {Record<string, string | boolean>} changes @param {boolean} [replace] */
const filter = (changes, replace = false) => go(address('/orders', { ...filters(), ...changes }), { replace });

export function Orders() {
  const given = filters(), cursor = route.value.query.get('cursor') ?? '';
  const request = address('/api/admin/sagas', { ...given, cursor, limit: PAGE_SIZE });
  const { data, problem } = useLoaded(request, (abort) => get(request, abort), cursor ? 0 : REFRESH);
  // The page before stays until the next one is there.
  const read = useRef(/** @type {{ request: string, page: SagaPage } | null} */ (null));
  if (data) read.current = { request, page: data };
  return html`
    <div class="orders-head"><h1>Orders</h1><${Search} /></div>
    <${Filters} given=${given} />
    <${Failure} problem=${problem} />
    ${read.current && html`<${Page} key=${read.current.request} page=${read.current.page} isLoading=${!data && !problem} given=${given} cursor=${cursor} />`}
    ${!read.current && !problem && html`<p class="loading">Loading…</p>`}`;
}

/** Text that filters shortly after the last key. @param {string} name @param {boolean} opensIds a whole order id opens the order */
function useTyped(name, opensIds) {
  const inAddress = route.value.query.get(name) ?? '';
  const [text, setText] = useState(inAddress);
  const timer = useRef(/** @type {ReturnType<typeof setTimeout> | undefined} */ (undefined));
  useEffect(() => { setText(inAddress); }, [inAddress]);
  useEffect(() => () => clearTimeout(timer.current), []);
  const apply = (/** @type {string} */ value) => {
    clearTimeout(timer.current);
    if (opensIds && isUuid(value.trim())) go(`/orders/${value.trim().toLowerCase()}`);
    else if (value.trim() !== inAddress) filter({ [name]: value.trim() }, inAddress !== '');
  };
  const onInput = (/** @type {InputEvent} */ event) => {
    const { value } = /** @type {HTMLInputElement} */ (event.currentTarget);
    setText(value);
    clearTimeout(timer.current);
    if (opensIds && isUuid(value.trim())) apply(value);
    else timer.current = setTimeout(() => apply(value), TYPING);
  };
  return { text, onInput, apply: () => apply(text) };
}

function Search() {
  const id = useId();
  const { text, onInput, apply } = useTyped('customer', true);
  const submit = (/** @type {SubmitEvent} */ event) => { event.preventDefault(); apply(); };
  return html`<form role="search" onSubmit=${submit}>
    <label for=${id} class="hidden">Order id, or part of the customer</label>
    <input id=${id} type="search" value=${text} onInput=${onInput} placeholder="Order id, or part of the customer" autocomplete="off" spellcheck="false" />
    <button>Find</button>
  </form>`;
}

/** Options of a filter, with the number of orders where it is known. @param {string[]} names @param {Record<string, number>} counts */
const options = (names, counts) => names.map((name) => html`<option key=${name} value=${name}>${inWords(name)}${inBrackets(counts[name])}</option>`);

/** @param {number | undefined} count */
const inBrackets = (count) => (count ? ` (${number(count)})` : '');

/** @param {{ given: Record<string, string> }} properties */
function Filters({ given }) {
  const id = useId();
  const { text, onInput, apply } = useTyped('text', false);
  const { by_status: byStatus = {}, waiting = {}, overdue = 0, steps: measured = [] } = overview.value?.sagas ?? {};
  const steps = new Set([...Object.keys(waiting), ...measured.map((one) => one.step), given.stuck_at].filter(Boolean));
  const choose = (/** @type {Event} */ event) => {
    const { name, value } = /** @type {HTMLSelectElement} */ (event.currentTarget);
    filter({ [name]: value });
  };
  const chooseOverdue = (/** @type {Event} */ event) => filter({ overdue: /** @type {HTMLInputElement} */ (event.currentTarget).checked });
  const submit = (/** @type {SubmitEvent} */ event) => { event.preventDefault(); apply(); };
  return html`<form class="filters" aria-label="Filters" onSubmit=${submit}>
    <div><label for=${`${id}s`}>Status</label>
      <select id=${`${id}s`} name="status" value=${given.status ?? ''} onChange=${choose}>
        <option value="">any</option>${options(STATUSES, byStatus)}</select></div>
    <div><label for=${`${id}w`}>Waits for</label>
      <select id=${`${id}w`} name="stuck_at" value=${given.stuck_at ?? ''} onChange=${choose}>
        <option value="">any step, or none</option>${options([...steps], waiting)}</select></div>
    <div><label for=${`${id}t`}>Text in the order</label><input id=${`${id}t`} value=${text} onInput=${onInput} autocomplete="off" spellcheck="false" /></div>
    <label class="check"><input type="checkbox" checked=${given.overdue === 'true'} onChange=${chooseOverdue} /> Overdue${inBrackets(overdue)}</label>
    ${Object.keys(given).length > 0 && html`<${Link} class="button" href="/orders">Clear the filters<//>`}
  </form>`;
}

/** @param {{ page: SagaPage, isLoading: boolean, given: Record<string, string>, cursor: string }} properties */
function Page({ page, isLoading, given, cursor }) {
  const table = useRef(/** @type {HTMLElement | null} */ (null));
  const held = useRef(/** @type {SagaItem[]} */ ([]));
  const [, showNewest] = useState(0);
  useEffect(() => { if (cursor) scrollTo(0, 0); }, []);
  const { rows, gone, newer, older } = heldInPlace(held.current, page.sagas, table.current);
  held.current = rows;
  const release = () => { held.current = []; showNewest((round) => round + 1); };
  const unreadable = page.unreadable ?? [];
  return html`<div aria-busy=${isLoading} ref=${table}>
    <${Count} page=${page} isFirst=${!cursor} given=${given} />
    ${newer > 0 && html`<p class="held" role="status">${counted(newer, 'newer order')}. The rows stay where they are while you
      read${older > 0 && `, and the last ${number(older)} are not brought up to date`}.
      ${' '}<button type="button" onClick=${release}>Show the newest</button></p>`}
    ${rows.length > 0 ? html`<${Table} rows=${rows} gone=${gone} />` : unreadable.length === 0 && html`<${Nothing} given=${given} cursor=${cursor} />`}
    ${unreadable.length > 0 && html`<${Unreadable} ids=${unreadable} />`}
    ${(cursor || page.next) && html`<nav class="pages" aria-label="Pages">
      ${cursor && html`<${Link} class="button" href=${address('/orders', given)}>First page<//>`}
      ${page.next && html`<${Link} class="button" rel="next" href=${address('/orders', { ...given, cursor: page.next })}>Next ${PAGE_SIZE}<//>`}
    </nav>`}
  </div>`;
}

/** @param {{ ids: string[] }} properties */
const Unreadable = ({ ids }) => html`<section class="failure">
  <p>${counted(ids.length, 'order')} of this page cannot be shown, because the stored view is damaged:</p>
  <ul>${ids.map((id) => html`<li key=${id} class="id">${id}</li>`)}</ul></section>`;

/** How many there are, and how far admin is behind. @param {{ page: SagaPage, isFirst: boolean, given: Record<string, string> }} properties */
function Count({ page, isFirst, given }) {
  const { total, unconsumed } = page;
  const what = Object.keys(given).length > 0 ? 'matching order' : 'order';
  const lag = unconsumed === undefined ? 'How far admin is behind is unknown: the broker does not answer.'
    : unconsumed > 0 && `Admin has ${counted(unconsumed, 'message')} to consume: what is shown may be older than what happened.`;
  return html`<p class="count"><b>${total === undefined ? `More ${what}s than can be counted quickly` : counted(total, what)}</b>${' '}
    <span class="quiet">newest first${isFirst ? '' : '; this page stays as it is'}</span>
    ${' '}${lag && html`<span class=${unconsumed === undefined ? 'warn' : 'quiet'}>${lag}</span>`}</p>`;
}

/** @param {{ rows: SagaItem[], gone: Set<string> }} properties */
function Table({ rows, gone }) {
  return html`<div class="scroll"><table class="orders">
    <thead><tr><th>Order</th><th>Customer</th><th class="right">Total</th><th>Status</th><th>Waits for</th>
      <th class="right">Since</th><th class="right">Cancelled in</th><th class="right">Last fact</th><th>Cancelled because</th></tr></thead>
    <tbody>${rows.map((saga) => html`<${Row} key=${saga.id} saga=${saga} isGone=${gone.has(saga.id)} />`)}</tbody>
  </table></div>`;
}

/** Opens an order from anywhere in its row, unless a link or a selected text is meant. @param {MouseEvent} event @param {string} id */
function open(event, id) {
  if (event.defaultPrevented || event.button !== 0 || /** @type {HTMLElement} */ (event.target).closest('a, button') || String(getSelection())) return;
  if (event.metaKey || event.ctrlKey) window.open(`/orders/${id}`);
  else go(`/orders/${id}`);
}

/** @param {{ saga: SagaItem, isGone: boolean }} properties */
function Row({ saga, isGone }) {
  const { next } = saga, deadLetters = saga.manual_resolution ? [] : saga.dead_letters ?? [];
  const title = isGone ? 'Not on this page any more: it may have changed since' : null;
  return html`<tr class=${`link ${isGone ? 'gone' : ''}`} title=${title} onClick=${(/** @type {MouseEvent} */ event) => open(event, saga.id)}>
    <th scope="row"><${OrderLink} id=${saga.id} /></th>
    <td>${saga.customer ?? '–'}</td>
    <td class="right">${money(saga.total)}</td>
    <td><${Status} status=${saga.status} />${saga.overdue && html` <span class="status bad">overdue</span>`}</td>
    <td>${next ? html`${next.step} <small>${next.owner}</small>` : '–'}
      ${deadLetters.map(({ dead_letter: id }) => html`<small key=${id}> <${Link} href=${`/dead-letters/${id}`}>dead letter<//></small>`)}</td>
    <td class="right"><${Since} at=${saga.waits_since} /></td>
    <td class="right"><${Countdown} at=${saga.waits_until} /></td>
    <td class="right"><${Time} at=${saga.last_fact_at} /></td>
    <td>${saga.cancelled_because ? inWords(saga.cancelled_because) : '–'}</td>
  </tr>`;
}

/** What an order of these filters would be. @type {Record<string, (value: string) => string>} */
const CONDITIONS = {
  status: (value) => `has the status ${inWords(value)}`,
  overdue: () => 'is overdue',
  stuck_at: (value) => `waits for ${value}`,
  customer: (value) => `has “${value}” in the name of its customer`,
  text: (value) => `has the text “${value}”`,
};

/** @param {{ given: Record<string, string>, cursor: string }} properties */
function Nothing({ given, cursor }) {
  if (cursor) return html`<p>No order is older than those of the page before.</p>`;
  const conditions = Object.entries(given).map(([name, value]) => CONDITIONS[name](value));
  if (conditions.length > 0) return html`<p>No order ${conditions.join(' and ')}. One that does appears here by itself.</p>`;
  return html`<p>No order was placed yet. Each appears here by itself as soon as admin has consumed its <code>OrderCreated</code>.</p>`;
}
