// Story of an order: what happened when, between whom, from its facts, its payment, its dead letters and the audit log.

import { inWords } from '../../lib/format.js';

/** @typedef {import('../../types.js').Schemas} Schemas
 * @typedef {Schemas['SagaDetail']} SagaDetail @typedef {Schemas['TimelineEntry']} TimelineEntry @typedef {Schemas['PaymentDetail']} PaymentDetail
 * @typedef {Schemas['DeadLetterDetail']} DeadLetter @typedef {Schemas['LogEntry']} LogEntry
 * @typedef {{ saga: SagaDetail, payment: PaymentDetail | null, paymentProblem: unknown, isPaid: boolean,
 *   deadLetters: DeadLetter[], records: import('../../types.js').Schemas['ServiceRecord'][], log: LogEntry[], problems: string[] }} Known
 * @typedef {'fact' | 'call' | 'operator' | 'customer' | 'note' | 'problem' | 'resolved' | 'deadline'} Kind
 * @typedef {{ key: string, at: string, from: string, to: string[], name: string, note: string, kind: Kind,
 *   seenBy?: string[], fact?: TimelineEntry, deadLetter?: string }} Moment
 *   from: the service; to: services that receive it; none for what happened at one place; seenBy: who can see it there
 * @typedef {{ lane: string, from: string, to: string | null, isProblem?: boolean }} Work time in which a service worked or waited; null: until now */

export const CUSTOMER = 'customer', ORDER = 'order', INVENTORY = 'inventory', PAYMENT = 'payment', BANK = 'bank', ADMIN = 'admin';
const LANES = [CUSTOMER, ORDER, INVENTORY, PAYMENT, BANK, ADMIN];

/** Services that consume a fact. Admin consumes all of them. @type {Record<string, string[]>} */
const CONSUMERS = {
  OrderCreated: [INVENTORY], StockReserved: [PAYMENT], StockReservationFailed: [ORDER], PaymentProcessed: [ORDER], PaymentFailed: [ORDER],
  OrderConfirmed: [INVENTORY], OrderCancelled: [INVENTORY, PAYMENT], DeadlineExtended: [PAYMENT],
};
/** Facts that change what the customer sees of the order. */
const SHOWN_TO_CUSTOMER = ['OrderConfirmed', 'OrderCancelled'];
/**
 * Events of a payment: between whom, and in words. Those that only repeat a fact are left out.
 * @type {Record<string, { from: string, to?: string, name: string }>}
 */
const PAYMENT_EVENTS = {
  Requested: { from: PAYMENT, to: BANK, name: 'charge' },
  Captured: { from: BANK, to: PAYMENT, name: 'captured' },
  Refused: { from: BANK, to: PAYMENT, name: 'refused' },
  GivenUp: { from: PAYMENT, to: BANK, name: 'no clear answer: reverse' },
  ReversalRequested: { from: PAYMENT, to: BANK, name: 'reverse' },
  Reversed: { from: BANK, to: PAYMENT, name: 'reversed' },
  ClosureRequested: { from: PAYMENT, to: BANK, name: 'charged, or block it?' },
  RefundRequested: { from: PAYMENT, to: BANK, name: 'refund' },
  Refunded: { from: BANK, to: PAYMENT, name: 'refunded' },
  Expired: { from: PAYMENT, name: 'deadline passed' },
  Doomed: { from: PAYMENT, name: 'cancelled while the bank is called' },
  CallAbandoned: { from: PAYMENT, name: 'call abandoned' },
};
/** Events after which a void is the answer of the bank. */
const ASKS_BANK = ['ReversalRequested', 'ClosureRequested', 'GivenUp'];
/** Changes of the audit log that reach a service. @type {Record<string, { to: string, name: string }>} */
const OPERATOR_CHANGES = {
  'saga.extend': { to: ORDER, name: 'extend the deadline' },
  'saga.resolve': { to: PAYMENT, name: 'resolve manually' },
  'saga.withdraw_resolution': { to: PAYMENT, name: 'withdraw the resolution' },
  'payment.refund': { to: PAYMENT, name: 'refund' },
};

/** Writes the times in a note in another way. @param {string} note @param {(at: string) => string} write */
export const withTimes = (note, write) => note.replace(/\d{4}-\d\d-\d\dT[\d:.]+Z/g, write);

/** @param {TimelineEntry} fact */
function noteOf({ detail }) {
  const reason = detail.cancelled_because ?? detail.payment_failed_because;
  return reason ? inWords(reason) : detail.note ?? '';
}

/** @param {TimelineEntry} fact @returns {Moment} */
function factMoment(fact) {
  const { type, producer } = fact;
  const isDead = type === 'DeadLettered', isResolved = type === 'DeadLetterResolved';
  return {
    key: fact.message_id, at: fact.occurred_at, from: producer, to: CONSUMERS[type] ?? [], note: noteOf(fact),
    name: isDead ? 'dead letter' : isResolved ? 'dead letter resolved' : type, kind: isDead ? 'problem' : isResolved ? 'resolved' : 'fact',
    seenBy: SHOWN_TO_CUSTOMER.includes(type) ? [CUSTOMER] : [], fact,
    deadLetter: fact.detail.dead_lettered?.dead_letter ?? fact.detail.resolved,
  };
}

/** @param {PaymentDetail | null} payment @returns {Moment[]} */
function paymentMoments(payment) {
  const history = payment?.history ?? [];
  return history.flatMap(({ at, event, data }, index) => {
    const isReversed = event === 'Voided' && history.slice(0, index).some((one) => ASKS_BANK.includes(one.event));
    const known = PAYMENT_EVENTS[isReversed ? 'Reversed' : event];
    if (!known) return [];
    const value = /** @type {Record<string, unknown>} */ (data)?.[event];
    const note = typeof value === 'string' && event !== 'Captured' ? inWords(value) : '';
    const kind = /** @type {Kind} */ (known.to ? 'call' : 'note');
    return [{ key: `payment ${index}`, at, from: known.from, to: known.to ? [known.to] : [], name: known.name, note, kind }];
  });
}

/** @param {LogEntry[]} log @returns {Moment[]} */
function operatorMoments(log) {
  return log.flatMap((entry) => {
    const change = OPERATOR_CHANGES[entry.action];
    if (!change) return [];
    const note = [entry.operator, entry.reason, /^(done|asked)/.test(entry.outcome) ? '' : entry.outcome].filter(Boolean).join(': ');
    return [{ key: entry.id, at: entry.at, from: ADMIN, to: [change.to], name: change.name, note, kind: /** @type {const} */ ('operator') }];
  });
}

/** First failures before retries, and what operators did. @param {DeadLetter[]} deadLetters @returns {Moment[]} */
function deadLetterMoments(deadLetters) {
  return deadLetters.flatMap(({ id, service, step, history, attempts, replays, first_failed_at: firstFailed }) => {
    /** @type {Moment[]} */
    const changes = history.flatMap(({ at, what, operator, reason }, index) => {
      if (!operator || what === 'noted') return [];
      const note = [operator, reason].filter(Boolean).join(': ');
      return [{ key: `${id} ${index}`, at, from: ADMIN, to: [service], name: `dead letter ${what}`, note, kind: 'operator', deadLetter: id }];
    });
    /** @type {Moment} */
    const first = {
      key: `${id} first`, at: firstFailed, from: service, to: [], name: 'failed, retried', note: `${step}, ${attempts} attempts`, kind: 'problem',
      deadLetter: id,
    };
    return attempts - replays > 1 ? [first, ...changes] : changes;
  });
}

/** Deadlines that mattered: each that was replaced or passed, and the one that runs. @param {SagaDetail} saga @param {number} now @returns {Moment[]} */
function deadlineMoments(saga, now) {
  const deadlines = saga.timeline.flatMap((fact) => (fact.detail.deadline ? [fact.detail.deadline] : []));
  const last = deadlines.at(-1), ended = saga.timeline.at(-1)?.occurred_at ?? '';
  const passed = [...new Set(deadlines)].filter((at) => Date.parse(at) <= now && (saga.waits_since || at <= ended));
  const name = (/** @type {string} */ at) => (at === last ? 'deadline' : 'old deadline, extended before');
  return passed.map((at) => ({ key: `deadline ${at}`, at, from: ORDER, to: [], name: name(at), note: '', kind: 'deadline' }));
}

/** Of what happened in the same instant, the cause first. @type {Moment['kind'][]} */
const CAUSES_FIRST = ['customer', 'deadline', 'operator', 'call', 'note', 'problem', 'resolved', 'fact'];

/** @param {Known} known @param {number} now @returns {Moment[]} */
export function momentsOf({ saga, payment, deadLetters, log }, now) {
  const created = saga.timeline.find((fact) => fact.type === 'OrderCreated');
  /** @type {Moment[]} */
  const placed = created ? [{ key: 'placed', at: created.occurred_at, from: CUSTOMER, to: [ORDER], name: 'places the order', note: '', kind: 'customer' }] : [];
  const facts = saga.timeline.map(factMoment), ofLetters = deadLetterMoments(deadLetters);
  return [...placed, ...facts, ...paymentMoments(payment), ...operatorMoments(log), ...ofLetters, ...deadlineMoments(saga, now)].sort(compare);
}

/** @param {Moment} one @param {Moment} other */
function compare(one, other) {
  return Date.parse(one.at) - Date.parse(other.at) || digits(one.at).localeCompare(digits(other.at))
    || CAUSES_FIRST.indexOf(one.kind) - CAUSES_FIRST.indexOf(other.kind);
}

/** Microseconds of a time. Facts and events have fractions of different lengths, which do not compare as text. @param {string} at */
const digits = (at) => (/\.(\d+)/.exec(at)?.[1] ?? '').padEnd(6, '0').slice(0, 6);

/** Services of the story, in the order of the lanes. @param {Moment[]} moments */
export function lanesOf(moments) {
  const involved = new Set(moments.flatMap((one) => [one.from, ...one.to]));
  const others = [...involved].filter((lane) => !LANES.includes(lane));
  return [...LANES.filter((lane) => lane !== ADMIN && (lane !== BANK || involved.has(BANK))), ...others, ...(involved.has(ADMIN) ? [ADMIN] : [])];
}

/** Whether a service has to react to a moment. @param {Moment} moment @param {string} service */
const asksFor = (moment, service) => moment.kind === 'fact' && moment.fact?.type !== 'DeadlineExtended' && moment.to.includes(service);

/** Message that caused a fact: by its id, or after a call by what its service received last. @param {Moment} moment @param {Moment[]} before */
function causeOf(moment, before) {
  const fact = moment.fact;
  if (!fact) return undefined;
  const named = before.find((one) => one.fact?.message_id === fact.causation_id);
  return named ?? (fact.producer === PAYMENT ? before.findLast((one) => asksFor(one, PAYMENT)) : undefined);
}

/**
 * Time in which services worked: from the cause to the fact or the cancellation, and until now for what is owed.
 * @param {Moment[]} moments @param {SagaDetail} saga @returns {Work[]}
 */
export function workOf(moments, saga) {
  /** @type {Set<string>} */
  const answered = new Set();
  const done = moments.flatMap((moment, index) => {
    const cause = causeOf(moment, moments.slice(0, index));
    if (cause) answered.add(`${cause.key} ${moment.from}`);
    return cause ? [{ lane: moment.from, from: cause.key, to: moment.key, isProblem: moment.kind === 'problem' }] : [];
  });
  const owed = saga.remaining.slice(0, saga.cancelled_because ? undefined : 1).flatMap(({ owner }) => {
    const since = moments.findLast((one) => asksFor(one, owner));
    return since ? [{ lane: owner, from: since.key, to: null }] : [];
  });
  const end = moments.findIndex((one) => one.fact?.type === 'OrderCancelled');
  const isOpen = (/** @type {Moment} */ moment, /** @type {string} */ lane) => asksFor(moment, lane) && !answered.has(`${moment.key} ${lane}`);
  const cancelled = moments.slice(0, Math.max(0, end)).flatMap((moment) => moment.to.filter((lane) => isOpen(moment, lane))
    .map((lane) => ({ lane, from: moment.key, to: moments[end].key })));
  return [...done, ...cancelled, ...owed];
}
