// The money of an order: whether the order, payment and the bank agree.
import { inWords, money } from '../../lib/format.js';

/** @typedef {import('./story.js').Known} Known @typedef {import('../../types.js').Schemas['Money']} Money
 * @typedef {{ tone: 'good' | 'bad' | 'warn' | 'busy', text: string, agreement: string }} Verdict */

/** States of a payment in which a call to the bank is open, or may follow. */
const CALLING = ['CHARGING', 'EXPIRED', 'DOOMED', 'CLOSING', 'REVERSING', 'VOIDING', 'REFUNDING'];
/** Those after which the customer keeps the money. */
const GOES_BACK = ['DOOMED', 'REVERSING', 'VOIDING', 'REFUNDING'];
/** Charges at the bank that take nothing from the customer. */
const NOTHING_TAKEN = ['none', 'REFUSED', 'BLOCKED', 'FAILED_ONCE'];

/** @param {Money | undefined} one @param {Money | undefined} other */
const isSame = (one, other) => !one || !other || (one.amount_minor === other.amount_minor && one.currency === other.currency);

/** What became of the money, by the bank's own record. @param {Known} known @param {string} bank */
function outcome({ saga, payment }, bank) {
  const amount = money(payment?.charge?.amount ?? payment?.amount ?? saga.total);
  const reason = payment?.failure && payment.failure !== 'declined' ? ` (${inWords(payment.failure)})` : '';
  switch (bank) {
    case 'CAPTURED':
      return saga.cancelled_because ? `Charged ${amount} and not refunded: the customer does not have the money back.`
        : `Charged ${amount}: the customer has paid.`;
    case 'REFUNDED': return `Charged ${amount} and refunded: the customer has the money back.`;
    case 'REFUSED': return `The bank declined ${amount}${reason}: the customer has paid nothing.`;
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

/** @param {Verdict['tone']} tone @param {string} text @param {string} agreement @returns {Verdict} */
const verdict = (tone, text, agreement) => ({ tone, text, agreement });

/** Without a payment. @param {Known} known */
function withoutPayment({ saga, isPaid }) {
  if (isPaid) return verdict('bad', 'The order was paid by its facts, but payment has no payment of it.', 'no');
  const isToCome = saga.waits_since !== undefined && !saga.cancelled_because;
  return isToCome ? verdict('busy', 'No charge was requested yet: the customer has paid nothing so far.', 'yes, there is no payment yet')
    : verdict('good', 'No charge was requested: the customer has paid nothing.', 'yes, there is no payment');
}

/** While payment calls the bank. @param {string} text @param {string} bank @param {boolean} goesBack */
function whileCalling(text, bank, goesBack) {
  const rest = goesBack && bank === 'CAPTURED' ? 'The refund is not done yet.' : bank === 'REFUNDED' ? 'Payment has not learned of it yet.'
    : 'The call to the bank is still open.';
  return verdict('busy', `${text} ${rest}`, 'not yet, a call to the bank is open');
}

/** @param {Known} known @returns {Verdict} */
export function verdictOf(known) {
  const { saga, payment, paymentProblem } = known, resolution = saga.manual_resolution;
  if (paymentProblem) return verdict('warn', 'What became of the money is unknown: payment does not answer.', 'unknown, payment does not answer');
  if (!payment) return withoutPayment(known);
  if (payment.bank_problem) {
    const text = `The bank does not answer, so payment alone says what became of the money: ${inWords(payment.status)}.`;
    return verdict('warn', text, 'unknown, the bank does not answer');
  }
  const bank = payment.charge?.status ?? 'none', text = outcome(known, bank), isCaptured = bank === 'CAPTURED';
  const isOpen = saga.waits_since !== undefined, isCancelled = saga.cancelled_because !== undefined;
  if (resolution) return verdict('warn', `${text} ${resolution.operator} resolved the rest by other means: ${resolution.reason}`, 'resolved manually');
  if (!isSame(payment.charge?.amount, saga.total)) return verdict('bad', `${text} The order is ${money(saga.total)}.`, 'no, the amounts differ');
  const isBlocked = (saga.dead_letters ?? []).some((one) => one.step === 'payment-refund');
  if (isCaptured && isCancelled && isBlocked) return verdict('bad', `${text} A dead letter blocks the refund.`, 'not yet, the refund is not done');
  if (CALLING.includes(payment.status)) return whileCalling(text, bank, isCancelled || GOES_BACK.includes(payment.status));
  if (!agrees(payment.status, bank, payment.failure)) return verdict('bad', `${text} But payment says ${inWords(payment.status)}.`, 'no');
  if (isCaptured && isCancelled) {
    return isOpen ? verdict('busy', `${text} The refund is not requested yet.`, 'not yet, the refund is to come')
      : verdict('bad', `${text} The refund is missing.`, 'no, the order is cancelled');
  }
  if (isCaptured && isOpen) return verdict('busy', `${text} The order is not confirmed yet.`, 'yes');
  if (saga.status === 'COMPLETED' && NOTHING_TAKEN.includes(bank)) return verdict('bad', `${text} But the order is confirmed.`, 'no, the order is confirmed');
  return verdict('good', text, 'yes');
}
