// Activity: what people, processes and the system did, by time.
import { post } from '../../lib/api.js';
import { counted } from '../../lib/format.js';
import { html, useEffect, useMemo, useRef, useState } from '../../lib/html.js';
import { overview } from '../../lib/live.js';
import { address, Link, route } from '../../lib/router.js';
import { Action, confirmChange, Countdown, Failure, Panel, Status, Time, useLoaded } from '../../lib/ui.js';
import { Entry } from './entries.js';
import { Filters } from './filters.js';
import { loadPage, withReconciliation } from './sources.js';

/**
 * @typedef {import('./sources.js').View} View @typedef {import('./sources.js').Page} Page
 * @typedef {import('./sources.js').TimeLineEntry} TimeLineEntry
 */

/** Milliseconds between two readings of the newest page. */
const REFRESH = 4_000;

const SEARCHED = 'Nothing of what was searched so far matches. There is more to search.';
const EMPTY = 'Nothing matches. Changes by people, starts and stops of processes, notifications, redrives and reconciliations would be here.';

/** @returns {View} */
function viewOf() {
  const { query } = route.value;
  const read = (/** @type {string} */ name) => query.get(name) ?? '';
  return {
    operator: read('operator'), target: read('target'), kind: read('kind'), text: read('text'),
    since: read('since'), until: read('until'), cursor: read('cursor'), before: read('before'),
  };
}

export function Activity() {
  const view = viewOf();
  const key = address('/activity', { ...view });
  const { data, problem, reload } = useLoaded(key, (abort) => loadPage(view, abort), view.cursor ? 0 : REFRESH);
  const reconciliation = overview.value?.reconciliation;
  const all = useMemo(() => (data ? withReconciliation(data, view, reconciliation) : null), [data, reconciliation?.at]);
  const list = useRef(/** @type {HTMLOListElement | null} */ (null));
  const { entries, waiting, showAll } = useCalm(key, all, list);
  const people = useMemo(() => [...new Set((data?.entries ?? []).flatMap((one) => (one.kind === 'change' ? [one.value.operator] : [])))].sort(), [data]);
  const back = view.cursor && html`<${Link} href=${address('/activity', { ...view, cursor: null, before: null })}>Back to the newest<//>`;
  return html`
    <h1>What happened</h1>
    <${Filters} key=${key} view=${view} people=${people} />
    <${Receiver} notifications=${data?.notifications ?? null} sent=${reload} />
    <${Failure} problem=${problem} />
    ${(data?.gaps ?? []).map((gap) => html`<p key=${gap} class="activity-gap" role="status"><b>Not complete.</b> ${gap}</p>`)}
    <${Panel} title=${view.cursor ? 'Older' : 'Newest first'} actions=${back}>
      ${waiting > 0 && html`<button type="button" class="activity-new" onClick=${showAll}>Show ${counted(waiting, 'new entry', 'new entries')}</button>`}
      ${!data && !problem && html`<p class="quiet">Loading…</p>`}
      <ol class="activity" ref=${list}>${entries.map((entry) => html`<${Entry} key=${entry.key} entry=${entry} />`)}</ol>
      ${data && entries.length === 0 && html`<p class="quiet">${data.next ? SEARCHED : EMPTY}</p>`}
      ${data && view.cursor && !data.next && html`<p class="quiet">Nothing older is kept.</p>`}
      ${data?.next && html`<p><${Link} class="button" href=${address('/activity', { ...view, ...data.next })}>Older<//></p>`}
    <//>`;
}

/**
 * Keeps entries in their place while somebody reads. New ones wait until they are asked for.
 * @param {string} key @param {TimeLineEntry[] | null} all @param {{ current: HTMLOListElement | null }} list
 */
function useCalm(key, all, list) {
  const [shown, setShown] = useState(/** @type {{ key: string, entries: TimeLineEntry[] }} */ ({ key, entries: [] }));
  const isReading = () => scrollY > 60 || Boolean(list.current?.querySelector('details[open]')) || Boolean(list.current?.contains(document.activeElement));
  useEffect(() => {
    if (!all) return;
    setShown((before) => {
      if (before.key !== key || before.entries.length === 0 || !isReading()) return { key, entries: all };
      // Outcomes and deliveries of what is shown go on.
      const latest = new Map(all.map((entry) => [entry.key, entry]));
      return { key, entries: before.entries.map((entry) => latest.get(entry.key) ?? entry) };
    });
  }, [key, all]);
  const known = new Set(shown.entries.map((entry) => entry.key));
  const isCurrent = shown.key === key;
  const waiting = isCurrent && all && shown.entries.length > 0 ? all.filter((entry) => !known.has(entry.key) && entry.at >= shown.entries[0].at).length : 0;
  const showAll = () => {
    if (all) setShown({ key, entries: all });
    list.current?.scrollIntoView({ block: 'nearest' });
  };
  return { entries: isCurrent ? shown.entries : [], waiting, showAll };
}

/** Where notifications go, and a test of it. @param {{ notifications: Page['notifications'], sent: () => void }} properties */
function Receiver({ notifications, sent }) {
  const breaker = notifications?.breaker;
  const until = breaker?.open_until && html` until <${Time} at=${breaker.open_until} /> (<${Countdown} at=${breaker.open_until} />)`;
  const held = (notifications?.open ?? []).filter((one) => !one.notified_at && !one.cleared_at).length;
  return html`<p class="activity-receiver">
    ${notifications && html`<span>Notifications go to <b>${notifications.to ?? 'the standard output of admin: nobody is called'}</b>.</span>`}
    ${breaker && breaker.state !== 'CLOSED' && html`
      <span class="warn">The breaker of the receiver is <${Status} status=${breaker.state} />${until}. Notifications wait; none is lost.</span>`}
    ${held > 0 && html`<span class="warn">${counted(held, 'problem')} held back: people have not been told yet.</span>`}
    <${Action} onClick=${() => sendTest(notifications?.to ?? null, sent)}>Send a test notification<//>
  </p>`;
}

/** @param {string | null} to @param {() => void} sent */
function sendTest(to, sent) {
  confirmChange({
    title: 'Send a test notification',
    effect: html`<p>One notification that says that it is a test goes to <b>${to ?? 'the standard output of admin'}</b>. Its
      delivery appears in the time line.</p>`,
    label: 'Send',
    run: (reason) => post('/api/admin/notifications/test', reason ? { reason } : {}),
    done: () => { sent(); return 'The test notification is on its way'; },
  });
}
