// What happened to an order and its money, as a text for support and the customer.
import { inWords, money } from '../../lib/format.js';
import { verdictOf } from './money.js';
import { withTimes } from './story.js';

/** @typedef {import('./story.js').Known} Known @typedef {import('./story.js').Moment} Moment */

/** Characters of a customer or a note, which others have written: one line each. @param {string} text */
const line = (text) => text.replace(/\s+/g, ' ');

/** @param {string} at */
const utc = (at) => `${new Date(at).toISOString().slice(0, 23).replace('T', ' ')} UTC`;

/** @param {Moment} moment */
function happened({ at, from, to, name, note }) {
  return `${utc(at)}  ${from}${to.length > 0 ? ` > ${to.join(', ')}` : ''}: ${name}${note ? ` (${line(withTimes(note, utc))})` : ''}`;
}

/** @param {Known} known @param {Moment[]} moments @param {{ system: string, readAt: number }} source */
export function proofOf(known, moments, { system, readAt }) {
  const { saga, payment } = known, verdict = verdictOf(known), { manual_resolution: resolution } = saga;
  const charge = payment?.charge, charged = charge?.amount ? `, ${money(charge.amount)}` : '';
  return [
    `Order ${saga.id}`,
    `Customer: ${line(saga.customer ?? 'unknown')}`,
    `Ordered total: ${money(saga.total)}`,
    `Status: ${saga.status}${saga.cancelled_because ? `, cancelled because: ${inWords(saga.cancelled_because)}` : ''}`,
    ...(saga.deadline ? [`Deadline: ${utc(saga.deadline)}`] : []),
    '',
    'Money',
    verdict.text,
    `Payment: ${payment ? `${payment.status}, ${payment.id}` : known.paymentProblem ? 'unknown' : 'none'}`,
    `Bank: ${charge ? `${charge.status}${charged}, charge ${charge.id}` : payment?.bank_problem ? 'unknown' : 'no charge'}`,
    `They agree: ${verdict.agreement}`,
    ...(resolution ? [`Resolved manually by ${resolution.operator} at ${utc(resolution.at)}: ${line(resolution.reason)}`] : []),
    '',
    'What happened',
    ...moments.map(happened),
    ...(saga.remaining.length > 0 ? ['', 'Still to come', ...saga.remaining.map((one) => `${one.fact}, by ${one.owner}`)] : []),
    '',
    `Read from ${system} at ${utc(new Date(readAt).toISOString())}.${known.problems.length > 0 ? ` Incomplete: ${known.problems.join('; ')}.` : ''}`,
  ].join('\n');
}
