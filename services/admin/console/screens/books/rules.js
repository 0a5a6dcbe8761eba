// Books: the rules of the reconciliation in words, and the commands in its advice.

/** @typedef {import('../../types.js').Schemas['Discrepancy']} Discrepancy @typedef {'order' | 'product' | 'service' | 'step'} About */

/** What is wrong if a rule is violated, and what its subjects are. @type {Record<string, { title: string, about: About }>} */
const RULES = {
  'every order ends': { title: 'Orders are past their deadline, and neither confirmed nor cancelled', about: 'order' },
  'everything belongs to an order': { title: 'Reservations, payments or charges belong to no order', about: 'order' },
  'every fact was published by a service': { title: 'The saga view has facts that no service has published', about: 'order' },
  'total = sum of the lines': { title: 'The total of an order is not the sum of its lines', about: 'order' },
  'prices are the catalogue\'s': { title: 'An order has a price that its product never had', about: 'order' },
  'lines agree': { title: 'Reserved or sold pieces are not those that were ordered', about: 'order' },
  'customers agree': { title: 'Services have different customers for one order', about: 'order' },
  'amounts agree': { title: 'Services have different amounts for one order', about: 'order' },
  'one charge per order': { title: 'A customer was charged more than once', about: 'order' },
  'one capture per confirmed order': { title: 'Confirmed orders are not paid exactly once', about: 'order' },
  'confirmed = sold': { title: 'The stock of confirmed orders is not sold', about: 'order' },
  'cancelled = stock back': { title: 'Cancelled orders still hold stock', about: 'order' },
  'cancelled = money back': { title: 'Customers of cancelled orders do not have their money back', about: 'order' },
  'bank ledger = payments': { title: 'The bank and payment have different amounts for a charge', about: 'order' },
  'saga view = published facts': { title: 'The saga view does not have exactly what services published', about: 'order' },
  'on hand + reserved + sold = supplied': { title: 'Pieces of a product are missing, or there are too many', about: 'product' },
  'stock = reservations': { title: 'Reserved or sold pieces of a product are not those of its orders', about: 'product' },
  'catalogue copy = catalogue': { title: 'The order service has another catalogue than inventory', about: 'product' },
  'every row = fold of its events': { title: 'Rows were changed without an event', about: 'service' },
  'every row can be read': { title: 'Rows cannot be read', about: 'service' },
  'every fact is published': { title: 'The broker does not accept a fact', about: 'service' },
  'published = handled + waiting + dead': { title: 'A step has not processed what was published for it, or too much', about: 'step' },
  'manual resolution still holds': { title: 'Something changed after it was resolved by hand: it may have been done twice', about: 'order' },
};

/** @param {string} rule */
export const titleOf = (rule) => RULES[rule]?.title ?? `Violated: ${rule}`;

/** @param {string} rule */
export const aboutOf = (rule) => RULES[rule]?.about ?? null;

const UUID = /^[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}$/;

/** @param {string} text */
export const isId = (text) => UUID.test(text);

/** Rows that have the id of their order. */
const ROW_OF_ORDER = /^(?:order|reservation|payment|saga)\/(.+)$/;

/** Id of the order that a discrepancy is about. @param {{ rule?: string, subject: string, detail: string }} found */
export function orderOf({ rule, subject, detail }) {
  const id = aboutOf(rule ?? '') === 'service' ? (ROW_OF_ORDER.exec(detail)?.[1] ?? '') : subject;
  return isId(id) ? id : null;
}

const COMMANDS = [
  'saga (?:show|resolve|withdraw-resolution) [\\w-]+', 'dlq list',
  'outbox (?:list|retry [\\w-]+|republish(?: inventory)?)', '(?:stop|start|rebuild) [\\w-]+', 'reconcile(?= --)',
];
const COMMAND = new RegExp(`sagactl ((?:${COMMANDS.join('|')})(?: --[a-z]+ [\\w-]+| KIND)*)`, 'g');

/** Commands in an advice, without `sagactl`. @param {Discrepancy} found */
export function commandsOf({ rule, detail, advice = '' }) {
  const kind = aboutOf(rule) === 'service' ? /^([a-z_]+)\//.exec(detail)?.[1] : undefined;
  return [...advice.matchAll(COMMAND)].map(([, command]) => (kind ? command.replace('KIND', kind) : command).replaceAll('--reason WHY', '--reason "WHY"'));
}

/** The step whose baseline may be accepted, if the advice says so. @param {Discrepancy} found */
export const stepToAccept = ({ advice = '' }) => /sagactl reconcile --accept ([\w-]+)/.exec(advice)?.[1] ?? null;
