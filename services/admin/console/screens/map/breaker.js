// A circuit breaker: what it sees, and forcing it.
import { post } from '../../lib/api.js';
import { counted, number } from '../../lib/format.js';
import { html } from '../../lib/html.js';
import { Action, confirmChange, Countdown, Since, Status, Time } from '../../lib/ui.js';

/** @typedef {import('../../types.js').Schemas['BreakerView']} Breaker @typedef {import('../../types.js').Schemas['BreakerAction']} BreakerAction */

/** @type {Record<BreakerAction, { title: string, effect: (what: string) => string, done: string }>} */
const CHANGES = {
  open: {
    title: 'Force open', done: 'Forced open',
    effect: (what) => `Every replica rejects ${what} until the breaker is reset or forced closed. What is rejected waits and is tried again later.`,
  },
  closed: {
    title: 'Force closed', done: 'Forced closed',
    effect: (what) => `Every replica admits ${what}, however many fail, until the breaker is reset or forced open.`,
  },
  reset: {
    title: 'Reset', done: 'Reset',
    effect: (what) => `Every replica admits ${what} again and watches from an empty window: the breaker opens and closes by itself.`,
  },
};

/**
 * @param {{ service: string, breaker: Breaker | undefined, problem?: string, what: string, reload: () => void }} properties
 *   what: the attempts or calls that it guards
 */
export function BreakerPart({ service, breaker, problem, what, reload }) {
  if (!breaker) return html`<h3>Breaker</h3><p class="quiet">Unknown${problem ? `: ${problem}` : ''}</p>`;
  const change = (/** @type {BreakerAction} */ action) => confirmChange({
    title: `${CHANGES[action].title}: breaker ${breaker.name} of ${service}`, effect: html`<p>${CHANGES[action].effect(what)}
      </p>`, label: CHANGES[action].title,
    kind: action === 'reset' ? 'primary' : 'danger', isReasonRequired: action !== 'reset',
    run: (reason) => post(`/api/admin/breakers/${service}/${breaker.name}`, { action, reason: reason || undefined }).then(reload),
    done: () => `${CHANGES[action].done}: breaker ${breaker.name}`,
  });
  const { policy, transitions } = breaker;
  return html`<h3>Breaker ${breaker.name}</h3>
    <p><${Status} status=${breaker.state} />${breaker.not_closed_since && html` for <${Since}
      at=${breaker.not_closed_since} />`}${breaker.open_until && html`, admits probes in <${Countdown} at=${breaker.open_until} />`}</p>
    <p>${counted(breaker.failures, 'failure')} and ${number(breaker.slow)} slow of the last ${counted(breaker.calls, 'call')};
      ${' '}${number(breaker.rejected)} rejected since the start.
      ${' '}<span class="quiet">Opens for ${policy.open_for} at ${policy.failure_rate} % failures.</span></p>
    <p class="actions">
      <${Action} needs="admin" off=${breaker.state === 'FORCED_OPEN' ? 'it is forced open already' : ''} onClick=${() => change('open')}>Force open<//>
      <${Action} needs="admin" off=${breaker.state === 'FORCED_CLOSED' ? 'it is forced closed already' : ''} onClick=${() => change('closed')}>Force closed<//>
      <${Action} needs="admin" onClick=${() => change('reset')}>Reset<//>
    </p>
    ${transitions.length > 0 && html`<details><summary>Last changes of state (${number(transitions.length)})</summary><ul class="plain-list">
      ${transitions.toReversed().map((one) => html`<li key=${one.at + one.to}><${Time} at=${one.at} /> <${Status} status=${one.to} /> ${one.why}</li>`)}</ul>
      </details>`}`;
}
