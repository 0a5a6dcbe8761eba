// Activity: one time line out of the audit log, notifications, findings, redrives and reconciliations.
import { get } from '../../lib/api.js';
import { clock, messageOf } from '../../lib/format.js';
import { address } from '../../lib/router.js';
import { ACTIONS } from './words.js';

/**
 * @typedef {import('../../types.js').Schemas} Schemas
 * @typedef {{ operator: string, target: string, kind: string, text: string, since: string, until: string, cursor: string, before: string }} View
 * @typedef {{ kind: 'change', value: Schemas['LogEntry'] } | { kind: 'notification', value: Schemas['SentNotification'] }
 *   | { kind: 'finding', value: Schemas['OpenFinding'] } | { kind: 'cleared', value: Schemas['OpenFinding'] }
 *   | { kind: 'redrive', value: Schemas['RedriveView'] } | { kind: 'reconciliation', value: Schemas['ReconciliationSummary'] }} Item
 * @typedef {Item & { key: string, at: string }} TimeLineEntry
 * @typedef {{ entries: TimeLineEntry[], gaps: string[], next: { cursor: string, before: string } | null,
 *   notifications: Schemas['NotificationsView'] | null }} Page
 */

/** Kinds of what the system did, with their names in the filter. @type {Record<string, string>} */
export const SYSTEM_KINDS = { notification: 'Notifications', finding: 'Problems seen and gone', redrive: 'Redrives', reconciliation: 'Reconciliations' };

const LIMIT = 50, MAX_REDRIVES = 200;

/** Whether a filter asks for a source. @param {string} wanted @param {string} kind */
function isWanted(wanted, kind) {
  if (!wanted || wanted === kind) return true;
  return kind === 'change' ? wanted === 'people' || wanted in ACTIONS : wanted === 'system';
}

/** @param {View} view @param {AbortSignal} abort @returns {Promise<Page>} */
export async function loadPage(view, abort) {
  const { kind } = view;
  const action = kind in ACTIONS ? kind : null;
  const { operator, target, text, since, until, cursor } = view;
  const query = { operator, target, text, since, until, cursor, action, limit: LIMIT };
  const areChangesWanted = isWanted(kind, 'change');
  const [log, notices, redrives] = await Promise.allSettled([
    areChangesWanted ? get(address('/api/admin/audit', query), abort) : null,
    get('/api/admin/notifications', abort),
    isWanted(kind, 'redrive') ? get(address('/api/admin/dlq/redrive', { limit: MAX_REDRIVES }), abort) : null,
  ]);
  // Without any answer, what was shown before stays.
  if (log.status === 'rejected' && notices.status === 'rejected') throw log.reason;
  /** @type {string[]} */
  const gaps = [];
  const valueOf = (/** @type {PromiseSettledResult<any>} */ result, /** @type {string} */ what) => {
    if (result.status === 'fulfilled') return result.value;
    gaps.push(`${what} could not be loaded, and what is in there is missing here: ${messageOf(result.reason)}`);
    return null;
  };
  const page = /** @type {Schemas['LogPage'] | null} */ (valueOf(log, 'The audit log'));
  const areNoticesWanted = isWanted(kind, 'notification') || isWanted(kind, 'finding');
  const notifications = /** @type {Schemas['NotificationsView'] | null} */ (
    areNoticesWanted || notices.status === 'fulfilled' ? valueOf(notices, 'The list of notifications') : null);
  const redrivePage = /** @type {Schemas['RedrivePage'] | null} */ (valueOf(redrives, 'The list of redrives'));
  const changes = (page?.entries ?? []).map((value) => entryOf({ kind: 'change', value }, value.id, value.at));
  const next = page?.next ? { cursor: page.next, before: changes.at(-1)?.at ?? view.before } : null;
  const system = systemEntries(notifications, redrivePage).filter((one) => isOnPage(one, view, next));
  if (page?.unreadable?.length) gaps.push(`${page.unreadable.length} damaged entries of the audit log cannot be shown: ${page.unreadable.join(', ')}`);
  if (redrivePage?.unreadable?.length) gaps.push(`${redrivePage.unreadable.length} damaged redrives cannot be shown: ${redrivePage.unreadable.join(', ')}`);
  gaps.push(...ends(notifications, redrivePage, kind, next?.before ?? view.since));
  return { entries: newestFirst([...changes, ...system]), gaps, next, notifications };
}

/** @param {TimeLineEntry[]} entries */
const newestFirst = (entries) => entries.sort((one, other) => Date.parse(other.at) - Date.parse(one.at));

/**
 * Entries of a page with the last reconciliation, which the live overview tells.
 * @param {Page} page @param {View} view @param {Schemas['ReconciliationSummary'] | undefined} value
 */
export function withReconciliation({ entries, next }, view, value) {
  if (!value) return entries;
  const entry = entryOf({ kind: 'reconciliation', value }, value.at, value.at);
  return isOnPage(entry, view, next) ? newestFirst([...entries, entry]) : entries;
}

/**
 * Whether a page shows an entry of the system: that whose changes are of the same time.
 * @param {TimeLineEntry} entry @param {View} view @param {Page['next']} next
 */
function isOnPage(entry, view, next) {
  const isOfItsTime = isBefore(entry.at, view.before) && (!next || !isBefore(entry.at, next.before));
  const isInFilter = isBefore(entry.at, view.until) && !isBefore(entry.at, view.since, false);
  return isOfItsTime && isInFilter && isWanted(view.kind, entry.kind === 'cleared' ? 'finding' : entry.kind) && isMatching(entry, view);
}

/** @param {string} at @param {string} limit @param {boolean} [otherwise] without a limit */
const isBefore = (at, limit, otherwise = true) => (limit ? Date.parse(at) < Date.parse(limit) : otherwise);

/**
 * Where admin keeps less of a source than the page shows of the audit log.
 * @param {Schemas['NotificationsView'] | null} notices @param {Schemas['RedrivePage'] | null} redrives @param {string} kind @param {string} from
 */
function ends(notices, redrives, kind, from) {
  const gaps = [];
  const oldest = notices && notices.notifications.length >= 20 ? notices.notifications[notices.notifications.length - 1].at : null;
  if (oldest && isWanted(kind, 'notification') && !isBefore(oldest, from, false)) {
    gaps.push(`Admin keeps the last ${notices?.notifications.length} notifications: those before ${clock(oldest, Date.now())} are not shown.`);
  }
  const first = redrives?.next ? redrives.redrives.at(-1)?.created_at : null;
  if (first && !isBefore(first, from, false)) gaps.push(`Redrives started before ${clock(first, Date.now())} are not shown.`);
  return gaps;
}

/** @param {Schemas['NotificationsView'] | null} notices @param {Schemas['RedrivePage'] | null} redrives @returns {TimeLineEntry[]} */
function systemEntries(notices, redrives) {
  const open = notices?.open ?? [], cleared = open.filter((one) => one.cleared_at);
  return [
    ...(notices?.notifications ?? []).map((value) => entryOf({ kind: 'notification', value }, value.id, value.at)),
    ...open.map((value) => entryOf({ kind: 'finding', value }, `${value.key} ${value.since}`, value.since)),
    ...cleared.map((value) => entryOf({ kind: 'cleared', value }, `${value.key} ${value.since}`, value.cleared_at ?? '')),
    ...(redrives?.redrives ?? []).map((value) => entryOf({ kind: 'redrive', value }, value.id, value.updated_at)),
  ];
}

/** @param {Item} item @param {string} id @param {string} at @returns {TimeLineEntry} */
const entryOf = (item, id, at) => ({ ...item, key: `${item.kind} ${id}`, at });

/** Whether an entry of the system has what the filter asks for; admin does this for the audit log. @param {TimeLineEntry} entry @param {View} view */
function isMatching(entry, { operator, target, text }) {
  const contains = (/** @type {string} */ whole, /** @type {string} */ part) => whole.toLowerCase().includes(part.toLowerCase());
  const author = entry.kind === 'redrive' ? `system ${entry.value.operator}` : 'system';
  const content = JSON.stringify(entry.value);
  return (!operator || contains(author, operator)) && (!target || contains(content, target)) && (!text || contains(content, text));
}
