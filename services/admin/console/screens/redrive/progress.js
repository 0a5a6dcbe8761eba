// The progress of a redrive: as a bar, and in words.
import { counted, number } from '../../lib/format.js';
import { html } from '../../lib/html.js';

/** @typedef {import('../../types.js').Redrive} Redrive */

/** Parts of the bar, which add up to all dead letters of the redrive. @param {Redrive} redrive @returns {[string, number][]} */
export const partsOf = (redrive) => [
  ['resolved', redrive.resolved - redrive.in_vain], ['in vain', redrive.in_vain], ['failed', redrive.failed],
  ['in flight', redrive.in_flight], ['remaining', redrive.remaining],
];

/** @param {{ redrive: Redrive }} properties */
export function ProgressBar({ redrive }) {
  const parts = partsOf(redrive).filter(([, count]) => count > 0), total = parts.reduce((sum, [, count]) => sum + count, 0);
  const text = parts.map(([name, count]) => `${number(count)} ${name}`).join(', ') || 'nothing to replay';
  const ended = total - redrive.in_flight - redrive.remaining;
  return html`<div class="progress-bar" role="progressbar"
    aria-label="Progress" aria-valuemin="0" aria-valuemax=${total} aria-valuenow=${ended} aria-valuetext=${text} title=${text}>
    ${parts.map(([name, count]) => html`<i key=${name} class=${name.replace(' ', '-')} style=${{ flexGrow: count }}></i>`)}
  </div>`;
}

/** @param {Redrive} redrive */
export const isOver = (redrive) => ['STOPPED', 'CANCELLED', 'DONE'].includes(redrive.status);

/** What the canary tells so far. @param {Redrive} redrive */
export function canaryText({ canary, status, round_sent: sent, in_flight: inFlight }) {
  if (canary === 0) return 'none: all are replayed without a trial.';
  const size = counted(canary, 'dead letter');
  if (status === 'CANARY' && sent === 0) return `${size} first.`;
  if (status === 'CANARY') return `${number(sent)} of ${number(canary)} sent; ${number(inFlight)} without an outcome yet. The rest waits for them.`;
  if (status === 'STOPPED' && sent <= canary) return `${size}; it did not pass.`;
  if (status === 'RUNNING' || status === 'DONE') return `${size}; it passed.`;
  return `${size}.`;
}

/** What a redrive did, in one sentence. @param {Redrive} redrive */
export function whatItDid({ status, resolved, in_vain: inVain, failed, in_flight: inFlight, remaining, sent }) {
  const took = resolved - inVain;
  const parts = [took === 0 ? 'none was resolved with an effect' : `${number(took)} ${took === 1 ? 'was' : 'were'} resolved`];
  if (inVain > 0) parts.push(`${number(inVain)} changed nothing, because ${inVain === 1 ? 'its saga' : 'their sagas'} had ended`);
  if (failed > 0) parts.push(`${number(failed)} failed again or ${failed === 1 ? 'was' : 'were'} discarded since`);
  if (inFlight > 0) parts.push(`${number(inFlight)} ${inFlight === 1 ? 'has' : 'have'} no outcome yet`);
  const last = parts.length > 1 ? ` and ${parts.pop()}` : '';
  const rest = remaining > 0 ? `; ${number(remaining)} ${remaining === 1 ? 'was' : 'were'} not replayed` : '';
  const end = status === 'DONE' ? '' : status === 'CANCELLED' ? ' before it was cancelled' : ' before it stopped';
  return `It replayed ${counted(sent, 'dead letter')}${end}: ${parts.join(', ')}${last}${rest}.`;
}
