// Changes of an order that an operator can make.
import { post } from '../../lib/api.js';
import { clock, counted, money } from '../../lib/format.js';
import { html } from '../../lib/html.js';
import { now, serverNow } from '../../lib/live.js';
import { Action, confirmChange, Minutes, OrderLink, secondsOf, Time } from '../../lib/ui.js';

/** @typedef {import('./story.js').SagaDetail} SagaDetail @typedef {import('./money.js').Verdict} Verdict */

/** Why the deadline cannot be extended; empty if it can. @param {SagaDetail} saga */
function whyNotExtend(saga) {
  if (saga.cancelled_because) return 'the order is cancelled';
  if (!saga.waits_until) return 'the order has ended, or has no deadline';
  return Date.parse(saga.waits_until) <= serverNow.value ? 'the deadline has passed' : '';
}

/** Why the saga cannot be resolved manually; empty if it can. @param {SagaDetail} saga @param {Verdict} verdict */
function whyNotResolve(saga, verdict) {
  const canComplete = ['STARTED', 'IN_PROGRESS'].includes(saga.status) && saga.waits_until && Date.parse(saga.waits_until) > serverNow.value;
  if (canComplete) return 'the order can still complete; it can be resolved once its deadline has passed';
  return ['COMPLETED', 'COMPENSATED'].includes(saga.status) && verdict.tone === 'good' ? 'the order has ended, and its money agrees' : '';
}

/** @param {{ saga: SagaDetail, verdict: Verdict, reload: () => void }} properties */
export function Actions({ saga, verdict, reload }) {
  return html`<div class="actions">
    <${Action} off=${whyNotExtend(saga)} onClick=${() => extend(saga, reload)}>Extend the deadline<//>
    ${saga.manual_resolution ? html`<${Action} onClick=${() => withdraw(saga, reload)}>Withdraw the resolution<//>`
      : html`<${Action} off=${whyNotResolve(saga, verdict)} onClick=${() => resolve(saga, verdict, reload)}>Resolve manually<//>`}
  </div>`;
}

/** @param {any} outcome */
function extended(outcome) {
  if (outcome.done === 0) throw new Error(outcome.rejected[0]?.detail ?? 'admin did not extend the deadline');
  return outcome;
}

/** @param {SagaDetail} saga @param {() => void} reload */
function extend(saga, reload) {
  confirmChange({
    title: 'Extend the deadline',
    effect: html`<p>Order <${OrderLink} id=${saga.id} /> gets more time before it is cancelled.
      Its deadline is <${Time} at=${saga.deadline} />; a new one that is no later has no effect.</p>`,
    fields: html`<${Minutes} />`,
    label: 'Extend', isReasonRequired: true,
    run: async (reason, values) => extended(await post(`/api/admin/sagas/${saga.id}/extend`, { seconds: secondsOf(values), reason })),
    done: (outcome) => { reload(); return `Asked to extend the deadline until ${clock(outcome.until, now.value)}`; },
  });
}

/** @param {SagaDetail} saga @param {Verdict} verdict @param {() => void} reload */
function resolve(saga, verdict, reload) {
  const deadLetters = saga.dead_letters?.length ?? 0, steps = saga.remaining.map((one) => one.step).join(', ');
  confirmChange({
    title: 'Resolve manually',
    effect: html`<p>You declare that the rest of order <${OrderLink} id=${saga.id} /> (${saga.customer}, ${money(saga.total)}) was done by other means.</p>
      <ul><li>It ends as resolved manually. No service is asked for ${steps || 'anything more'}.</li>
        <li>Payment stops calling the bank: a refund that is not made yet will not be made.</li>
        ${deadLetters > 0 && html`<li>${counted(deadLetters, 'dead letter')} ${deadLetters === 1 ? 'is' : 'are'} resolved with it.</li>`}
        <li>The reconciliation accepts the discrepancies of now, and no others.</li></ul>
      <p><b>${verdict.text}</b></p>`,
    label: 'Resolve manually', kind: 'danger', isReasonRequired: true,
    run: (reason) => post(`/api/admin/sagas/${saga.id}/resolve`, { reason }),
    done: () => { reload(); return 'The order is resolved manually'; },
  });
}

/** @param {SagaDetail} saga @param {() => void} reload */
function withdraw(saga, reload) {
  confirmChange({
    title: 'Withdraw the resolution',
    effect: html`<p>Order <${OrderLink} id=${saga.id} /> is open again with its dead letters, and payment calls the bank again.
      If the money was given back by other means, the customer may get it twice.</p>
      <p>Resolved by ${saga.manual_resolution?.operator} at <${Time} at=${saga.manual_resolution?.at} />: ${saga.manual_resolution?.reason}</p>`,
    label: 'Withdraw', kind: 'danger', isReasonRequired: true,
    run: (reason) => post(`/api/admin/sagas/${saga.id}/withdraw-resolution`, { reason }),
    done: () => { reload(); return 'The resolution is withdrawn: the order is open again'; },
  });
}
