// Activity: changes in words, and the objects that they are about.
import { counted, money, number } from '../../lib/format.js';
import { html } from '../../lib/html.js';
import { address, Link } from '../../lib/router.js';
import { Id } from '../../lib/ui.js';

/** @typedef {import('../../types.js').Schemas} Schemas @typedef {Schemas['LogEntry']} LogEntry @typedef {Schemas['Action']} Action */

/**
 * Each change: the group of its choice in the filter, its name there, and what its author did to its target.
 * @type {Record<Action, [string, string, string]>}
 */
export const ACTIONS = {
  'dlq.replay': ['Dead letters', 'Replay', 'replayed dead letter'],
  'dlq.edit': ['Dead letters', 'Edit and replay', 'edited and replayed dead letter'],
  'dlq.discard': ['Dead letters', 'Discard', 'discarded dead letter'],
  'dlq.restore': ['Dead letters', 'Restore', 'restored dead letter'],
  'dlq.note': ['Dead letters', 'Note', 'added a note to dead letter'],
  'dlq.resolve': ['Dead letters', 'Resolve manually', 'resolved manually dead letter'],
  'dlq.withdraw_resolution': ['Dead letters', 'Withdraw a resolution', 'withdrew the resolution of dead letter'],
  'dlq.replay_many': ['Dead letters', 'Replay many', 'replayed dead letters'],
  'dlq.discard_many': ['Dead letters', 'Discard many', 'discarded dead letters'],
  'dlq.restore_many': ['Dead letters', 'Restore many', 'restored dead letters'],
  'dlq.note_many': ['Dead letters', 'Note for many', 'added a note to dead letters'],
  'dlq.resolve_many': ['Dead letters', 'Resolve many manually', 'resolved manually dead letters'],
  'dlq.withdraw_resolution_many': ['Dead letters', 'Withdraw many resolutions', 'withdrew the resolution of dead letters'],
  'redrive.start': ['Redrives', 'Start', 'started redrive'],
  'redrive.pause': ['Redrives', 'Pause', 'paused redrive'],
  'redrive.resume': ['Redrives', 'Resume', 'resumed redrive'],
  'redrive.cancel': ['Redrives', 'Cancel', 'cancelled redrive'],
  'redrive.stop': ['Redrives', 'Automatic stop', 'stopped redrive'],
  'saga.extend': ['Orders', 'Extend deadlines', 'extended the deadlines of'],
  'saga.resolve': ['Orders', 'Resolve manually', 'resolved manually order'],
  'saga.withdraw_resolution': ['Orders', 'Withdraw a resolution', 'withdrew the resolution of order'],
  'payment.refund': ['Orders', 'Refund', 'refunded the payment of order'],
  'reconciliation.accept_baseline': ['Reconciliation', 'Accept a baseline', 'accepted the baseline of step'],
  'product.list': ['Products', 'New product', 'added product'],
  'product.price': ['Products', 'Price', 'changed the price of'],
  'product.restock': ['Products', 'Restock', 'restocked'],
  'breaker.open': ['Breakers', 'Open', 'opened breaker'],
  'breaker.closed': ['Breakers', 'Close', 'closed breaker'],
  'breaker.reset': ['Breakers', 'Reset', 'reset breaker'],
  'fault.inject': ['Faults', 'Inject', 'injected a fault into'],
  'fault.clear': ['Faults', 'Clear', 'cleared a fault of'],
  'fault.clear_all': ['Faults', 'Clear all', 'cleared all faults of'],
  'outbox.retry': ['Outbox', 'Retry', 'retried the outbox of'],
  'outbox.republish': ['Outbox', 'Publish again', 'published messages again of'],
  'process.start': ['Processes', 'Start', 'started process'],
  'process.stop': ['Processes', 'Stop', 'stopped process'],
  'process.kill': ['Processes', 'Kill', 'killed process'],
  'token.create': ['Tokens', 'Issue', 'issued token'],
  'token.revoke': ['Tokens', 'Revoke', 'revoked token'],
  'notifications.test': ['Notifications', 'Test', 'sent a test'],
  'finding.acknowledge': ['Notifications', 'Acknowledge', 'said to work on'],
};

const ID = /^[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}$/, FINGERPRINT = /^[0-9a-f]{12}$/;

/** Address of what a change is about, if it has a screen. @param {{ action: string, target: string, detail?: any }} entry */
function screenOf({ action, target, detail }) {
  const [about] = action.split('.');
  if (about === 'dlq' && ID.test(target)) return `/dead-letters/${target}`;
  if (about === 'dlq' && FINGERPRINT.test(target)) return address('/dead-letters', { fingerprint: target });
  if (about === 'redrive') return `/redrives/${target}`;
  if (about === 'saga' && detail?.stuck_at) return address('/orders', { stuck_at: detail.stuck_at });
  if ((about === 'saga' || about === 'payment') && ID.test(target)) return `/orders/${target}`;
  if (about === 'reconciliation') return '/books';
  return null;
}

/** @param {{ action: string, target: string, detail?: any }} entry */
function Target(entry) {
  const screen = screenOf(entry), { target } = entry;
  if (screen && ID.test(target)) return html`<${Id} id=${target} to=${screen} />`;
  if (screen) return html`<${Link} href=${screen}>${target}<//>`;
  return html`<b>${target}</b>`;
}

/** @param {{ entry: LogEntry }} properties */
export function Change({ entry }) {
  const detail = /** @type {Record<string, any>} */ (entry.detail ?? {});
  const verb = ACTIONS[entry.action]?.[2] ?? entry.action;
  const more = extras(entry.action, detail);
  const whose = entry.action !== 'saga.extend' ? '' : detail.stuck_at ? ' orders that wait for' : ' order';
  return html`<b>${entry.operator}</b> ${detail.reported_operator && `(as ${detail.reported_operator}) `}${verb}${whose} <${Target} ...${entry} />
    ${more && html` ${more}`}${typeof detail.saga === 'string' && html` of order <${Id} id=${detail.saga} to=${`/orders/${detail.saga}`} />`}`;
}

/** The details that one needs at first sight. @param {string} action @param {Record<string, any>} detail */
function extras(action, detail) {
  const price = money(detail.unit_price);
  if (action === 'product.price') return `to ${price}`;
  if (action === 'product.restock') return `with ${number(detail.quantity)} pieces`;
  if (action === 'product.list') return `at ${price}, ${number(detail.quantity)} pieces`;
  const { kind = '', step, probability } = detail;
  if (action === 'fault.inject') return `${kind}${step ? ` at ${step}` : ''}${probability ? `, ${probability} %` : ''}`;
  if (action === 'redrive.start' && detail.matching !== undefined) return `of ${counted(detail.matching, 'dead letter')}`;
  return '';
}

/** Lists ids in a detail that are orders. @param {Record<string, any>} detail @returns {string[]} */
export function ordersOf({ sagas = [], orders = [] }) {
  return [sagas, orders].flat().filter((one) => typeof one === 'string' && ID.test(one));
}
