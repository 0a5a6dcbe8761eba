// The dead letters that match the filter, by pages, and changes to many of them.
import { get } from '../../lib/api.js';
import { counted, number } from '../../lib/format.js';
import { html, useState } from '../../lib/html.js';
import { address, go, Link } from '../../lib/router.js';
import { Action, Failure, Id, OrderLink, Panel, Status, Time, useLoaded } from '../../lib/ui.js';
import { changeMany, CHANGES, reasonOff } from './changes.js';
import { filterInWords, isNarrow, listAddress, statusesOf, wizardAddress, ANY } from './filter.js';
import { ReplayValue } from './words.js';

/** @typedef {import('../../types.js').DeadLetterItem} DeadLetterItem @typedef {import('../../types.js').DeadLetterPage} DeadLetterPage */

const PAGE = 50, REFRESH = 4_000;
/** Most ids that the API takes at once. */
const MOST_CHOSEN = 1_000;

/** @param {{ view: import('./filter.js').View, changed: () => void }} properties */
export function Letters({ view, changed }) {
  const path = address('/api/admin/dlq', { ...view.fields, status: statusesOf(view), limit: PAGE, cursor: view.cursor });
  const { data, problem, reload } = useLoaded(path, (abort) => /** @type {Promise<DeadLetterPage>} */ (get(path, abort)), REFRESH);
  const [chosen, setChosen] = useState(/** @type {Map<string, DeadLetterItem>} */ (new Map()));
  const [isAll, setAll] = useState(false);
  const letters = data?.dead_letters ?? [];
  const toggle = (/** @type {DeadLetterItem[]} */ some, /** @type {boolean} */ isOn) => {
    setAll(false);
    const next = new Map(chosen);
    for (const letter of some) {
      if (!isOn) next.delete(letter.id);
      else if (next.size < MOST_CHOSEN) next.set(letter.id, letter);
    }
    setChosen(next);
  };
  const clear = () => { setAll(false); setChosen(new Map()); };
  const refresh = () => { clear(); reload(); changed(); };
  // Their statuses may have changed since they were chosen.
  const current = new Map(letters.map((one) => [one.id, one]));
  const subject = isAll ? { fields: view.fields } : chosen.size > 0 ? { letters: [...chosen.values()].map((one) => current.get(one.id) ?? one) } : null;
  const isPageChosen = letters.length > 0 && letters.every((one) => isAll || chosen.has(one.id));
  return html`<${Panel} class="letters" title=${html`Dead letters${data?.total !== undefined
    && html` <small>${counted(data.total, 'match', 'match')}: ${filterInWords(view.fields)}</small>`}`}>
    <${Failure} problem=${problem} />
    ${data && data.unconsumed === undefined && html`<p class="warn">How far admin is behind is unknown, because the broker does not answer: the list may lack the newest.</p>`}
    ${(data?.unconsumed ?? 0) > 0 && html`<p class="quiet">Admin has ${counted(data?.unconsumed ?? 0, 'message')} to read yet: the list may lack the newest.</p>`}
    ${data && letters.length === 0 ? html`<${Nothing} view=${view} />` : html`
      <div class="bar" role="group" aria-label="Changes to the chosen dead letters">
        <span class="chosen" role="status">${isAll ? html`<b>All that match</b> on all pages` : html`<b>${number(chosen.size)}</b> chosen`}</span>
        ${!isAll && html`<button type="button" class="plain"
          onClick=${() => setAll(true)}>Select all${data?.total !== undefined ? ` ${number(data.total)}` : ''} that match the filter</button>`}
        ${subject && html`<button type="button" class="plain" onClick=${clear}>Clear the selection</button>`}
        <span class="actions">
          <${Action} off=${redriveOff(view, chosen.size > 0 && !isAll)} onClick=${() => go(wizardAddress(view.fields))}>Redrive all that match…<//>
          ${Object.entries(CHANGES).map(([name, change]) => html`<${Action} key=${name}
            off=${reasonOff(change, subject, isAll ? statusesOf(view) : '')}
            onClick=${() => subject && changeMany(change, subject, refresh)}>${change.label}…<//>`)}
        </span>
      </div>
      <div class="scroll"><table>
        <thead><tr><th><input type="checkbox" aria-label="Select this page" checked=${isPageChosen} disabled=${letters.length === 0}
          onChange=${() => toggle(letters, !isPageChosen)} /></th>
          <th>Dead letter</th><th>Failed</th><th>Status</th><th>Step</th><th>Message</th><th>Error</th><th>Order</th><th>Worth a replay?</th>
            <th class="right">Attempts</th></tr></thead>
        <tbody>${letters.map((letter) => html`<${Row} key=${letter.id} letter=${letter} isChosen=${isAll || chosen.has(letter.id)} toggle=${toggle} />`)}</tbody>
      </table></div>
      ${!data && !problem && html`<p class="quiet">Loading…</p>`}`}
    ${(data?.unreadable ?? []).length > 0 && html`<p class="warn">Damaged, and not shown: ${(data?.unreadable ?? []).join(', ')}</p>`}
    <nav class="pages" aria-label="Pages">
      ${view.cursor && html`<${Link} class="button" href=${listAddress(view)}>First page<//>
        <button type="button" onClick=${() => history.back()}>Back</button>`}
      ${data?.next && html`<${Link} class="button" href=${listAddress(view, { cursor: data.next })}>Next page<//>`}
    </nav>
  <//>`;
}

/** @param {import('./filter.js').View} view @param {boolean} isSome */
function redriveOff(view, isSome) {
  if (!isNarrow(view)) return 'choose a cause, or another filter, first';
  return isSome ? 'a redrive takes all pending ones that match the filter: clear the selection first' : '';
}

/** @param {{ letter: DeadLetterItem, isChosen: boolean, toggle: (some: DeadLetterItem[], isOn: boolean) => void }} properties */
function Row({ letter, isChosen, toggle }) {
  return html`<tr class=${isChosen ? 'chosen' : ''}>
    <td><input type="checkbox" aria-label=${`Select dead letter ${letter.id}`} checked=${isChosen} onChange=${() => toggle([letter], !isChosen)} /></td>
    <td><${Id} id=${letter.id} to=${`/dead-letters/${letter.id}`} /></td>
    <td class="nowrap"><${Time} at=${letter.last_failed_at} /></td>
    <td><${Status} status=${letter.status} /></td>
    <td>${letter.step} <small>${letter.service}</small></td>
    <td>${letter.message_type ?? html`<span class="quiet">${letter.origin}</span>`}${letter.edited && html` <small>edited</small>`}</td>
    <td class="error" title=${letter.reason}><span>${letter.reason}</span></td>
    <td>${letter.saga ? html`<${OrderLink} id=${letter.saga} />` : html`<span class="quiet">–</span>`}</td>
    <td><${ReplayValue} letter=${letter} /></td>
    <td class="right nowrap" title=${`${counted(letter.replays, 'failed replay')}`}>${number(letter.attempts)}${letter.replays > 0
      && html` <small>${counted(letter.replays, 'replay')}</small>`}</td>
  </tr>`;
}

/** @param {{ view: import('./filter.js').View }} properties */
function Nothing({ view }) {
  if (view.status === ANY) return html`<p>No dead letter matches: ${filterInWords(view.fields)}.</p>`;
  return html`<p>No dead letter of this status matches.
    Messages that a service cannot process would be here. <${Link} href=${listAddress({ ...view, status: ANY })}>Show those of any status<//></p>`;
}
