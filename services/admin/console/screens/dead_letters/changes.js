// Changes of dead letters: what each does, to how many, and how it went.
import { denial, post, remove } from '../../lib/api.js';
import { clock, counted, inWords, messageOf, number } from '../../lib/format.js';
import { html } from '../../lib/html.js';
import { address } from '../../lib/router.js';
import { close, confirmChange, Id, isDialogOpen, Minutes, secondsOf, show, tell } from '../../lib/ui.js';
import { countMatching, filterInWords } from './filter.js';
import { askNote } from './note.js';
import { needsForce } from './words.js';

/** @typedef {import('../../types.js').DeadLetterItem} DeadLetterItem @typedef {import('../../types.js').BulkOutcome} BulkOutcome */

/**
 * @typedef {{ label: string, done: string, statuses: string[], effect: string, path: string, most?: number, kind?: string, what?: string,
 *   fields?: () => any, body?: (values: Record<string, string>) => Record<string, unknown> }} Change
 *   statuses: those that it takes by filter; most: most of a filter; what: of what it counts
 */

/** Force is for admins. */
const force = () => (denial('admin') ? html`<p class="quiet">Those of which three replays have failed are rejected. Only an admin can force them.</p>`
  : html`<label class="check"><input type="checkbox" name="force" value="yes" /> Force: also replay those of which three replays have failed</label>`);

/** @type {Record<string, Change>} */
export const CHANGES = {
  extend: {
    label: 'Extend the orders', done: 'Extended', statuses: ['PENDING', 'REPLAYING', 'DISCARDED'], path: '/api/admin/sagas/extend', what: 'order',
    effect: 'Their orders get more time before they are cancelled. Orders that have ended, or are past their deadline, are left as they are.',
    fields: () => html`<${Minutes} />`, body: (values) => ({ seconds: secondsOf(values) }),
  },
  replay: {
    label: 'Replay', done: 'Asked to replay', statuses: ['PENDING'], path: '/api/admin/dlq/replay', most: 1_000,
    effect: 'Each message is processed once more by the step that failed, all at once and without a canary. For many, a redrive is safer.',
    fields: force, body: (values) => (values.force ? { force: true } : {}),
  },
  discard: {
    label: 'Discard', done: 'Discarded', statuses: ['PENDING'], path: '/api/admin/dlq/discard', kind: 'danger',
    effect: 'Their messages will not be processed. Orders that still wait for them are cancelled at their deadline. Discarded dead letters can be restored.',
  },
  restore: {
    label: 'Restore', done: 'Restored', statuses: ['DISCARDED'], path: '/api/admin/dlq/restore',
    effect: 'Discarded dead letters are pending again, and can be replayed.',
  },
  note: {
    label: 'Add a note', done: 'Added the note to', statuses: ['PENDING', 'REPLAYING', 'DISCARDED', 'RESOLVED_MANUALLY'], path: '/api/admin/dlq/notes',
    effect: 'Each gets the same note in its history. Nothing else changes.',
  },
  resolve: {
    label: 'Resolve manually', done: 'Resolved', statuses: ['PENDING'], path: '/api/admin/dlq/resolve', most: 1_000, kind: 'danger',
    effect: 'This declares that their work was done by other means. Nothing is processed. A saga is resolved with its last dead letter.',
  },
  withdraw: {
    label: 'Withdraw the resolution', done: 'Reopened', statuses: ['RESOLVED_MANUALLY'], path: '/api/admin/dlq/withdraw-resolution', most: 1_000,
    effect: 'They are pending again, and their sagas are open again.',
  },
};

/** @param {string[]} statuses */
const inStatus = (statuses) => statuses.map(inWords).join(', ').replace(/, ([^,]*)$/, ' or $1');

/**
 * What a change is about: chosen dead letters, or all that a filter matches.
 * @typedef {{ letters: DeadLetterItem[] } | { fields: Record<string, string> }} Subject
 */

/** Why a change is not possible now; empty if it is. @param {Change} change @param {Subject | null} subject @param {string} shown statuses of the list */
export function reasonOff(change, subject, shown) {
  if (!subject) return 'choose dead letters first';
  if ('letters' in subject) {
    return subject.letters.some((one) => change.statuses.includes(one.status)) ? '' : `none of the chosen is ${inStatus(change.statuses)}`;
  }
  if (Object.keys(subject.fields).length === 0) return 'choose a cause, or another filter besides the status, first';
  return !shown || change.statuses.some((one) => shown.split(',').includes(one)) ? '' : `the list shows none that are ${inStatus(change.statuses)}`;
}

/** What it will do to how many. @param {Change} change @param {Subject} subject */
async function effectOf(change, subject) {
  if ('letters' in subject) {
    const taken = subject.letters.filter((one) => change.statuses.includes(one.status)), others = subject.letters.length - taken.length;
    const orders = new Set(taken.flatMap((one) => (one.saga ? [one.saga] : []))).size;
    return html`<p><b>${counted(taken.length, 'dead letter')}${change.what ? html`, of ${counted(orders, 'order')}` : ''}.</b> ${change.effect}</p>
      ${others > 0 && html`<p class="warn">${counted(others, 'other chosen one')} ${others === 1 ? 'is' : 'are'} not ${inStatus(change.statuses)}, and will be rejected.</p>`}`;
  }
  const { count, isMore } = await countMatching(subject.fields, change.statuses);
  const most = change.most ?? Infinity;
  return html`<p><b>${isMore ? `${number(count)} or more dead letters` : `All ${counted(count, 'dead letter')}`} that match now:</b> ${filterInWords(subject.fields)}; ${inStatus(change.statuses)}.</p>
    <p>${change.effect}</p><p class="quiet">The filter is read again when you confirm. On all pages, whatever status the list shows.</p>
    ${(count > most || isMore) && most < Infinity
      && html`<p class="warn">At most ${number(most)} can be changed at once. Narrow the filter down${change.path.endsWith('/replay') ? ', or use a redrive' : ''}.</p>`}`;
}

/** Asks for a change of many, makes it, and shows the outcome. @param {Change} change @param {Subject} subject @param {() => void} changed */
export async function changeMany(change, subject, changed) {
  let effect;
  try {
    effect = await effectOf(change, subject);
  } catch (problem) {
    tell(`Cannot count what it would change: ${messageOf(problem)}`, { isBad: true });
    return;
  }
  const chosen = 'letters' in subject ? { ids: subject.letters.map((one) => one.id) } : { filter: subject.fields };
  const done = (/** @type {BulkOutcome} */ outcome) => {
    changed();
    return showOutcome(change, outcome);
  };
  if (change === CHANGES.note) {
    askNote({ effect, run: (text) => post(change.path, { ...chosen, text }), done });
    return;
  }
  confirmChange({
    title: change.label, effect, label: change.label, kind: change.kind, fields: change.fields?.(), isReasonRequired: true,
    run: (reason, values) => post(change.path, { ...chosen, reason, ...change.body?.(values) }), done,
  });
}

/** Shows how a change of many went. Returns it in one sentence. @param {Change} change @param {BulkOutcome} outcome */
export function showOutcome(change, outcome) {
  const rejected = outcome.rejected.length + (outcome.more_rejected ?? 0);
  const ended = outcome.rejected.filter((one) => one.has_ended).length + (outcome.more_ended ?? 0);
  const parts = [`${change.done} ${counted(outcome.done, change.what ?? 'dead letter')}${outcome.until ? ` until ${clock(outcome.until, Date.now())}` : ''}`];
  if (ended > 0) parts.push(`${number(ended)} had ended, and did not need it`);
  if (rejected > ended) parts.push(`${number(rejected - ended)} rejected`);
  const sentence = parts.join('; ');
  // Not in the place of a dialog that was opened meanwhile.
  if (rejected > ended && !isDialogOpen()) show(() => html`<${Outcome} title=${sentence} outcome=${outcome} isOrder=${change.what === 'order'} />`);
  return sentence;
}

/** Rejections, by their reason. @param {{ title: string, outcome: BulkOutcome, isOrder: boolean }} properties */
function Outcome({ title, outcome, isOrder }) {
  /** @type {Map<string, string[]>} */
  const reasons = new Map();
  for (const { id, detail } of outcome.rejected) reasons.set(detail, [...(reasons.get(detail) ?? []), id]);
  const to = isOrder ? '/orders/' : '/dead-letters/';
  return html`<div class="outcome"><h2>${title}</h2>
    ${[...reasons].map(([detail, ids]) => html`<details key=${detail} open=${reasons.size === 1}><summary>${number(ids.length)}: ${detail}</summary>
      <ul class="counts" onClick=${close}>${ids.slice(0, 100).map((id) => html`<li key=${id}><${Id} id=${id} to=${to + id} />
        </li>`)}</ul>${ids.length > 100 && html`<p class="quiet">and ${number(ids.length - 100)} more</p>`}</details>`)}
    ${(outcome.more_rejected ?? 0) > 0 && html`<p>${counted(outcome.more_rejected ?? 0, 'more rejection')} not listed.</p>`}
    <footer><button type="button" class="primary" onClick=${close} autofocus>Close</button></footer></div>`;
}

/** Asks for a change of one dead letter, and makes it. @param {string} name @param {DeadLetterItem} letter @param {() => void} changed */
export function changeOne(name, letter, changed) {
  const change = CHANGES[name], path = `/api/admin/dlq/${letter.id}`;
  const isForced = name === 'replay' && needsForce(letter);
  /** @type {Record<string, (reason: string, values: Record<string, string>) => Promise<any>>} */
  const calls = {
    extend: (reason, values) => post(`/api/admin/sagas/${letter.saga}/extend`, { reason, ...change.body?.(values) }),
    replay: (reason) => post(`${path}/replay`, { ...(reason ? { reason } : {}), ...(isForced ? { force: true } : {}), version: letter.version }),
    discard: (reason) => remove(address(path, { reason })),
    restore: (reason) => post(`${path}/restore`, reason ? { reason } : {}),
    resolve: (reason) => post(`${path}/resolve`, { reason }),
    withdraw: (reason) => post(`${path}/withdraw-resolution`, { reason }),
  };
  if (name === 'note') {
    askNote({
      effect: html`<p>The note is kept in its history. Nothing else changes.</p>`, run: (text) => post(`${path}/notes`, { text }),
      done: () => { changed(); return 'Added the note'; },
    });
    return;
  }
  confirmChange({
    title: change.label, label: isForced ? `${change.label} with force` : change.label, kind: change.kind,
    effect: html`<p>${ONE[name](letter)}</p>${isForced && html`<p class="warn">${FORCED}</p>`}`,
    fields: name === 'extend' ? html`<${Minutes} />` : null, isReasonRequired: isForced || !['replay', 'restore'].includes(name),
    run: calls[name],
    done: (answer) => {
      changed();
      return name === 'extend' ? showOutcome(change, answer) : `${change.done} the dead letter`;
    },
  });
}

const FORCED = 'Three replays have failed, or one is in flight and may be lost. Force overrules that.';

/** What each change does to one. @type {Record<string, (letter: DeadLetterItem) => string>} */
const ONE = {
  extend: () => 'Its order gets more time before it is cancelled.',
  replay: (letter) => `Its message is processed once more, by ${letter.step} of ${letter.service} and nowhere else.`,
  discard: () => 'Its message will not be processed. An order that still waits for it is cancelled at its deadline. It can be restored.',
  restore: () => 'It is pending again, and can be replayed.',
  resolve: () => 'This declares that its work was done by other means. Nothing is processed. The saga is resolved with its last dead letter.',
  withdraw: () => 'It is pending again, and its saga is open again.',
};
