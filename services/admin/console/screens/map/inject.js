// Breaking something on purpose, at one place of the map.
import { post, session } from '../../lib/api.js';
import { html, useEffect, useId, useRef, useState } from '../../lib/html.js';
import { Action, confirmChange } from '../../lib/ui.js';
import { describe, kindsAt, MOST_DELAY_MS, MOST_OCCASIONS } from './kinds.js';
import { stepsOf } from './topology.js';

/** Why nothing can be broken at a service; empty if it can. @param {string} service @param {string[]} [disabled] services that allow no faults */
export function faultsOff(service, disabled = []) {
  if (!session.value?.faults_enabled) return 'faults are off in this system: admin runs with faults.enabled = false';
  return disabled.includes(service) ? `faults are off at ${service}: it runs with faults.enabled = false` : '';
}

/** @param {FormData} form @param {string} name */
const numberOf = (form, name) => (form.get(name) ? Number(form.get(name)) : undefined);

/** How a fault ends. @param {number} [seconds] @param {number} [next] */
function endText(seconds, next) {
  if (seconds) return `It ends after ${seconds} s${next ? ', or after these occasions' : ''}.`;
  return next ? 'It ends after these occasions, or when it is cleared.' : 'It goes on until it is cleared, also after a restart.';
}

/** @param {{ service: string, step?: string, disabled?: string[], reload: () => void }} properties step: the place; without one, the whole service */
export function BreakIt({ service, step, disabled, reload }) {
  const kinds = kindsAt(service, step), steps = step ? [] : stepsOf(service);
  const [name, setName] = useState(kinds[0].kind);
  const kind = kinds.find((one) => one.kind === name) ?? kinds[0];
  const id = useId(), off = faultsOff(service, disabled);
  useEffect(() => setName(kinds[0].kind), [service, step]);
  const element = useRef(/** @type {HTMLFormElement | null} */ (null));
  const choose = (/** @type {Event} */ event) => setName(/** @type {HTMLSelectElement} */ (event.currentTarget).value);
  const ask = () => {
    if (!element.current?.reportValidity()) return;
    const form = new FormData(element.current), seconds = numberOf(form, 'seconds');
    const fault = {
      service, kind: kind.kind, step: step ?? (String(form.get('step') ?? '') || undefined),
      probability: numberOf(form, 'probability'), next: numberOf(form, 'next'), for_seconds: seconds, delay_ms: numberOf(form, 'delay'),
    };
    confirmChange({
      title: `Break it: ${kind.name.toLowerCase()}`, label: 'Inject the fault', kind: 'danger',
      effect: html`<p>From now on, ${describe(fault)}.</p>
        <p>${endText(seconds, fault.next)}</p>
        ${kind.endsProcess && html`<p class="warn">The process of ${service} ends.
          Unless something starts it again, such as Kubernetes or an operator, the service stays down.</p>`}
        ${service === 'admin' && html`<p class="warn">Admin serves this console: it may stop answering.</p>`}`,
      run: (reason) => post('/api/admin/faults', { ...fault, reason: reason || undefined }).then(reload),
      done: () => `Injected: ${describe(fault)}`,
    });
  };
  return html`<form ref=${element} class="break-it" onSubmit=${(/** @type {Event} */ event) => { event.preventDefault(); ask(); }} aria-labelledby=${`${id}h`}>
    <h3 id=${`${id}h`}>Break it</h3>
    ${off && html`<p class="warn">${off}</p>`}
    <fieldset disabled=${off !== ''}>
      <label for=${`${id}k`}>Fault</label>
      <select id=${`${id}k`} value=${kind.kind} onChange=${choose}>
        ${kinds.map((one) => html`<option key=${one.kind} value=${one.kind}>${one.name} (${one.kind})</option>`)}</select>
      <p class="quiet">${step ?? (kind.takesStep ? 'A step' : `The ${service === 'bank' ? 'bank' : `process of ${service}`}`)} ${kind.effect}.</p>
      ${steps.length > 0 && kind.takesStep && html`<label for=${`${id}s`}>Step</label><select id=${`${id}s`} name="step"><option
        value="">every step of ${service}</option>${steps.map((one) => html`<option key=${one.step}>${one.step}</option>`)}</select>`}
      <div class="fields">
        ${kind.needsDelay && html`<div><label for=${`${id}d`}>Delay (ms)</label><input id=${`${id}d`} name="delay" type="number" min="1" max=${MOST_DELAY_MS}
          value="1000" required /></div>`}
        ${kind.kind !== 'pause' && html`<div><label for=${`${id}p`}>Probability (%)</label><input id=${`${id}p`} name="probability" type="number" min="1"
          max="100" value="100" required /></div>
          <div><label for=${`${id}n`}>Occasions</label><input id=${`${id}n`} name="next" type="number" min="1" max=${MOST_OCCASIONS} key=${kind.kind}
            value=${kind.endsProcess ? 1 : ''} placeholder="no limit" /></div>`}
        ${!kind.endsProcess && html`<div><label for=${`${id}e`}>End after (s)</label><input id=${`${id}e`} name="seconds" type="number" min="1" max="86400"
          placeholder="when cleared" /></div>`}
      </div>
      <${Action} needs="admin" off=${off} kind="danger" onClick=${ask}>Inject…<//>
    </fieldset>
  </form>`;
}
