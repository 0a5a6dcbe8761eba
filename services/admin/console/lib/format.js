// Numbers, money and times as people read them, in the zone of the viewer.

const WHOLE = new Intl.NumberFormat('en');
const DATE = new Intl.DateTimeFormat('en-GB', { day: 'numeric', month: 'short' });
const CLOCK = new Intl.DateTimeFormat('en-GB', { hour: '2-digit', minute: '2-digit', second: '2-digit' });
const CLOCK_MS = new Intl.DateTimeFormat('en-GB', { hour: '2-digit', minute: '2-digit', second: '2-digit', fractionalSecondDigits: 3 });

/** @param {number | null | undefined} value */
export const number = (value) => (value === null || value === undefined ? '–' : WHOLE.format(value));

/** @param {number} value @param {string} one @param {string} [many] */
export const counted = (value, one, many = `${one}s`) => `${number(value)} ${value === 1 ? one : many}`;

/** @param {{ amount_minor: number, currency: string } | null | undefined} amount */
export function money(amount) {
  if (!amount) return '–';
  const { maximumFractionDigits: digits = 2 } = new Intl.NumberFormat('en', { style: 'currency', currency: amount.currency }).resolvedOptions();
  const format = new Intl.NumberFormat('en', { minimumFractionDigits: digits, maximumFractionDigits: digits });
  return `${format.format(amount.amount_minor / 10 ** digits)} ${amount.currency}`;
}

/** A duration in milliseconds, in its two largest units. @param {number} ms */
export function duration(ms) {
  const size = Math.abs(ms);
  if (size < 1) return `${Math.round(size * 1000)} µs`;
  if (size < 1000) return `${Math.round(size)} ms`;
  if (size < 60_000) return `${size < 10_000 ? (size / 1000).toFixed(1) : Math.floor(size / 1000)} s`;
  const seconds = Math.floor(size / 1000);
  const [days, hours, minutes] = [Math.floor(seconds / 86_400), Math.floor(seconds / 3600) % 24, Math.floor(seconds / 60) % 60];
  if (days > 0) return `${days} d ${hours} h`;
  if (hours > 0) return `${hours} h ${minutes} min`;
  return `${minutes} min ${seconds % 60} s`;
}

/** Time left as on a stopwatch, m:ss; empty once it is over. @param {number} ms */
export function countdown(ms) {
  const left = Math.max(0, Math.ceil(ms / 1000));
  const minutes = Math.floor(left / 60);
  return minutes >= 60 ? `${Math.floor(minutes / 60)}:${String(minutes % 60).padStart(2, '0')}:${String(left % 60).padStart(2, '0')}`
    : `${minutes}:${String(left % 60).padStart(2, '0')}`;
}

/** Clock time of the viewer, with the date unless it is today. @param {string | number} at @param {number} now @param {boolean} [exact] */
export function clock(at, now, exact = false) {
  const time = new Date(at);
  const text = (exact ? CLOCK_MS : CLOCK).format(time);
  return DATE.format(time) === DATE.format(new Date(now)) ? text : `${DATE.format(time)} ${text}`;
}

/** @param {string} id */
export const shortId = (id) => (id.length > 14 ? `${id.slice(0, 8)}…${id.slice(-4)}` : id);

/** Name of the API in words, such as `timed_out`. @param {string} name */
export const inWords = (name) => name.toLowerCase().replaceAll('_', ' ');

/** @param {string} text */
export const isUuid = (text) => /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i.test(text);

/** What a rejected promise says. @param {unknown} problem */
export const messageOf = (problem) => (problem instanceof Error ? problem.message : String(problem));
