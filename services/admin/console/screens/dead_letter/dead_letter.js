// A dead letter: its message, error and history, and what can be done about it.
import { get } from '../../lib/api.js';
import { counted, inWords, isUuid, number } from '../../lib/format.js';
import { html } from '../../lib/html.js';
import { address, go, Link, route } from '../../lib/router.js';
import { Action, Command, Copy, Failure, Id, isNotFound, OrderLink, Panel, Since, Status, Time, useLoaded } from '../../lib/ui.js';
import { DeadLetterEdit } from './edit.js';
import { Message } from './message.js';
import { changeOne, CHANGES } from '../dead_letters/changes.js';
import { wizardAddress } from '../dead_letters/filter.js';
import { needsForce, ReplayValue } from '../dead_letters/words.js';

/** @typedef {import('../../types.js').DeadLetterDetail} DeadLetterDetail @typedef {import('../../types.js').Schemas['HistoryEntry']} HistoryEntry */

const REFRESH = 3_000;

/** @param {{ id: string }} properties */
export const DeadLetter = ({ id }) => (isUuid(id) ? html`<${DeadLetterWithId} id=${id} />` : html`<${Unknown} id=${id} />`);

/** @param {{ id: string }} properties */
const Unknown = ({ id }) => html`<h1>There is no dead letter ${id}</h1>
  <p>It may have been purged, or its service has not reported it yet. <${Link} href="/dead-letters">All dead letters<//></p>`;

/** @param {{ id: string }} properties */
function DeadLetterWithId({ id }) {
  const path = `/api/admin/dlq/${encodeURIComponent(id)}`;
  const { data: letter, problem, reload } = useLoaded(path, (abort) => /** @type {Promise<DeadLetterDetail>} */ (get(path, abort)), REFRESH);
  if (!letter) {
    if (isNotFound(problem)) return html`<${Unknown} id=${id} />`;
    return problem ? html`<h1>Dead letter</h1><${Failure} problem=${problem} />` : html`<p class="loading">Loading…</p>`;
  }
  const isEdited = route.value.query.get('edit') === '1';
  return html`<h1>Dead letter <${Status} status=${letter.status} /></h1>
    <${Failure} problem=${problem} />
    <${Summary} letter=${letter} />
    ${isEdited ? html`<${DeadLetterEdit} key=${letter.id} letter=${letter} changed=${reload} />` : html`
      <${Actions} letter=${letter} changed=${reload} />
      <div class="columns">
        <div class="stack"><${Errors} letter=${letter} /><${History} letter=${letter} /></div>
        <${Message} letter=${letter} />
      </div>`}`;
}

/** @param {{ letter: DeadLetterDetail }} properties */
function Summary({ letter }) {
  return html`<${Panel} class="causes" title=${letter.reason}>
    <p><${ReplayValue} letter=${letter} isLong /></p>
    <dl class="facts">
      <div><dt>Step</dt><dd>${letter.step} of ${letter.service}</dd></div>
      <div><dt>Message</dt><dd>${letter.message_type ?? letter.origin}${letter.edited && html` <small>edited</small>`}</dd></div>
      <div><dt>Order</dt><dd>${letter.saga ? html`<${OrderLink} id=${letter.saga} />` : '–'}</dd></div>
      <div><dt>Cause</dt><dd><${Link} class="id" href=${address('/dead-letters', { fingerprint: letter.fingerprint })}>${letter.fingerprint}<//></dd></div>
      <div><dt>Attempts</dt><dd>${number(letter.attempts)} <small>${counted(letter.replays, 'failed replay')}</small></dd></div>
      <div><dt>First failure</dt><dd><${Time} at=${letter.first_failed_at} /></dd></div>
      <div><dt>Last failure</dt><dd><${Time} at=${letter.last_failed_at} /> (<${Since} at=${letter.last_failed_at} />)</dd></div>
      ${letter.redrive && html`<div><dt>Redrive</dt><dd><${Id} id=${letter.redrive} to=${`/redrives/${letter.redrive}`} /></dd></div>`}
      <div><dt>Id</dt><dd><${Id} id=${letter.id} /> <${Copy} text=${letter.id} /></dd></div>
    </dl>
  <//>`;
}

/** Why a change is off. @param {string} name @param {DeadLetterDetail} letter */
function offReason(name, letter) {
  const status = inWords(letter.status);
  if (name === 'note') return '';
  if (name === 'extend' && !letter.saga) return 'it belongs to no order';
  if (name === 'extend' && !letter.replay_value?.awaited) return 'no order waits for it any more';
  if (name === 'replay' && letter.status === 'REPLAYING') return '';
  return CHANGES[name].statuses.includes(letter.status) ? '' : `it is ${status}`;
}

/** @param {{ letter: DeadLetterDetail, changed: () => void }} properties */
function Actions({ letter, changed }) {
  const action = (/** @type {string} */ name, kind = '') => {
    const isForced = name === 'replay' && needsForce(letter);
    return html`<${Action} needs=${isForced ? 'admin' : 'operator'} kind=${kind} off=${offReason(name, letter)}
      onClick=${() => changeOne(name, letter, changed)}>
      ${isForced ? 'Replay with force' : CHANGES[name].label.replace('the orders', 'the order')}…<//>`;
  };
  const isPending = letter.status === 'PENDING' || letter.status === 'REPLAYING';
  const editOff = letter.origin === 'task' ? 'a call has no message to edit' : isPending ? '' : offReason('replay', letter);
  return html`<div class="buttons">
    ${action('replay', letter.replay_value?.awaited ? 'primary' : '')}
    <${Action} needs="admin" off=${editOff} onClick=${() => go(address(`/dead-letters/${letter.id}`, { edit: 1 }))}>Edit and replay…<//>
    ${action('extend')}${letter.status === 'DISCARDED' ? action('restore') : action('discard')}${action('note')}
    ${letter.status === 'RESOLVED_MANUALLY' ? action('withdraw') : action('resolve')}
    <${Link} href=${wizardAddress({ fingerprint: letter.fingerprint })}>Redrive all of this cause<//>
  </div>
  <details class="causes"><summary>Commands</summary><${Command} command=${`dlq show ${letter.id}`} /><${Command} command=${`dlq replay ${letter.id}`} />
    </details>`;
}

/** @param {{ letter: DeadLetterDetail }} properties */
function Errors({ letter }) {
  const chain = letter.error_chain.length > 0 ? letter.error_chain : [letter.reason];
  // The second part of a traceparent is the id of the trace.
  const trace = letter.trace?.split('-')[1];
  return html`<${Panel} title="Error">
    <ol class="chain">${chain.map((error, index) => html`<li key=${index}>${index > 0 && html`<small>because of </small>`}${error}</li>`)}</ol>
    ${trace && html`<p class="quiet">Trace of the last attempt: <code>${trace}</code> <${Copy} text=${trace} /></p>`}
  <//>`;
}

/** @param {{ letter: DeadLetterDetail }} properties */
function History({ letter }) {
  return html`<${Panel} title="History" actions=${html`<${Link} href=${address('/activity', { target: letter.id })}>Audit log<//>`}>
    <ol class="history">${letter.history.toReversed().map((entry, index) => html`<li key=${letter.history.length - index}>
      <${Time} at=${entry.at} exact /> <b>${entry.what}</b> ${entry.operator ? html`by ${entry.operator}`
        : html`<span class="quiet">by ${letter.service}</span>`}${entry.reason && html`: ${entry.reason}`}
      <${Detail} entry=${entry} />
    </li>`)}</ol>
  <//>`;
}

/** @param {{ entry: HistoryEntry }} properties */
function Detail({ entry }) {
  const { redrive, round, text, error, attempts, replays, message_id: message } = /** @type {Record<string, any>} */ (entry.detail ?? {});
  if (redrive) return html`<div>in redrive <${Id} id=${redrive} to=${`/redrives/${redrive}`} />, round ${round}</div>`;
  if (text) return html`<div class="note">${text}</div>`;
  if (error) return html`<div>${error} <small>${counted(attempts, 'attempt')}${replays > 0 ? `, ${counted(replays, 'replay')}` : ''}</small></div>`;
  return message ? html`<div class="quiet">message <${Id} id=${message} />${replays > 0 ? `, after ${counted(replays, 'replay')}` : ''}</div>` : null;
}
