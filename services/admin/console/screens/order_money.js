// The money of an order: whether the order, payment and the bank agree.
import { inWords, money } from '../lib/format.js';

/** @typedef {import('./order_story.js').Known} Known @typedef {import('../types.js').Schemas['Money']} Money
 * @typedef {{ tone: 'good' | 'bad' | 'warn' | 'busy', text: string, agreement: string }} Verdict */

/** States of a payment in which a call to the bank is open, or may follow. */
const OPEN = ['CHARGING', 'EXPIRED', 'DOOMED', 'CLOSING', 'REVERSING', 'VOIDING', 'REFUNDING'];
/** Charges at the bank that take nothing from the customer. */
const NOTHING_TAKEN = ['none', 'REFUSED', 'BLOCKED', 'FAILED_ONCE'];

/** @param {Money | undefined} one @param {Money | undefined} other */
const isSame = (one, other) => !one || !other || (one.amount_minor === other.amount_minor && one.currency === other.currency);

/** What became of the money, by the bank's own record. @param {Known} known @param {string} bank */
function outcome({ saga, payment }, bank) {
  const amount = money(payment?.charge?.amount ?? payment?.amount ?? saga.total);
  switch (bank) {
    case 'CAPTURED': return saga.cancelled_because ? `Charged ${amount} and not refunded: the customer does not have the money back.` : `Charged ${amount}: the customer has paid.`;
    case 'REFUNDED': return `Charged ${amount} and refunded: the customer has the money back.`;
    case 'REFUSED': return `The bank declined ${amount}${payment?.failure ? ` (${inWords(payment.failure)})` : ''}: the customer has paid nothing.`;
    case 'BLOCKED': return 'Nothing was charged, and the bank blocks a late charge: the customer has paid nothing.';
    case 'FAILED_ONCE': return 'The bank failed at the first attempt and charged nothing: the customer has paid nothing.';
    default: return 'The bank has no charge for this order: the customer has paid nothing.';
  }
}

/** Whether what payment says is what the bank says. @param {string} status @param {string} bank @param {string | undefined} failure */
function agrees(status, bank, failure) {
  if (status === 'CAPTURED') return bank === 'CAPTURED';
  if (status === 'REFUNDED') return bank === 'REFUNDED';
  // A charge without a clear answer is reversed: a refund if it was captured.
  if (status === 'VOID' || (status === 'FAILED' && failure === 'exhausted')) return bank !== 'CAPTURED';
  return NOTHING_TAKEN.includes(bank);
}

/** @param {Known} known @returns {Verdict} */
export function verdictOf(known) {
  const { saga, payment, paymentProblem, isPaid } = known;
  const isOpen = saga.waits_since !== undefined, isCancelled = saga.cancelled_because !== undefined;
  if (paymentProblem) return { tone: 'warn', text: 'What became of the money is unknown: payment does not answer.', agreement: 'unknown' };
  if (!payment) {
    if (isPaid) return { tone: 'bad', text: 'The order was paid by its facts, but payment has no payment of it.', agreement: 'no' };
    return { tone: isOpen ? 'busy' : 'good', text: isOpen && !isCancelled ? 'No charge was requested yet: the customer has paid nothing so far.' : 'No charge was requested: the customer has paid nothing.', agreement: 'yes, no payment was made' };
  }
  if (payment.bank_problem) return { tone: 'warn', text: `The bank does not answer, so payment alone says what became of the money: ${payment.status}.`, agreement: 'unknown, the bank does not answer' };
  const bank = payment.charge?.status ?? 'none', text = outcome(known, bank), resolution = saga.manual_resolution;
  if (resolution) return { tone: 'warn', text: `${text} ${resolution.operator} resolved the rest by other means: ${resolution.reason}`, agreement: 'resolved manually' };
  if (!isSame(payment.charge?.amount, saga.total)) return { tone: 'bad', text: `${text} The order is ${money(saga.total)}.`, agreement: 'no, the amounts differ' };
  if (saga.status === 'COMPENSATION_STUCK' && bank === 'CAPTURED') return { tone: 'bad', text: `${text} A dead letter blocks the compensation.`, agreement: 'not yet, the refund is not done' };
  if (OPEN.includes(payment.status)) {
    const goesBack = isCancelled || ['DOOMED', 'REVERSING', 'VOIDING', 'REFUNDING'].includes(payment.status);
    return { tone: 'busy', text: `${text} ${goesBack && bank === 'CAPTURED' ? 'The refund is not done yet.' : bank === 'REFUNDED' ? 'Payment has not learned of it yet.' : 'The call to the bank is still open.'}`, agreement: 'not yet, a call to the bank is open' };
  }
  if (!agrees(payment.status, bank, payment.failure)) return { tone: 'bad', text: `${text} But payment says ${payment.status}.`, agreement: 'no' };
  if (bank === 'CAPTURED' && isCancelled) {
    return { tone: isOpen ? 'busy' : 'bad', text: `${text} The refund is ${isOpen ? 'not requested yet' : 'missing'}.`, agreement: isOpen ? 'not yet, the refund is to come' : 'no, the order is cancelled' };
  }
  if (bank === 'CAPTURED' && isOpen) return { tone: 'busy', text: `${text} The order is not confirmed yet.`, agreement: 'yes' };
  if (saga.status === 'COMPLETED' && NOTHING_TAKEN.includes(bank)) return { tone: 'bad', text: `${text} But the order is confirmed.`, agreement: 'no, the order is confirmed' };
  return { tone: 'good', text, agreement: 'yes' };
}
