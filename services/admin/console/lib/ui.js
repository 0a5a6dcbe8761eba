// Parts that screens share.
import { denial, operator, Problem, session, setOperator } from './api.js';
import { clock, countdown, duration, inWords, messageOf, shortId } from './format.js';
import { html, signal, useEffect, useId, useRef, useState } from './html.js';
import { now, serverNow } from './live.js';
import { address, Link, route } from './router.js';

/** Time in the viewer's zone, with UTC as its title. @param {{ at?: string | null, exact?: boolean }} properties */
export function Time({ at, exact = false }) {
  if (!at) return html`<span class="quiet">–</span>`;
  return html`<time datetime=${at} title=${`${at.slice(0, 23).replace('T', ' ').replace('Z', '')} UTC`}>${clock(at, now.value, exact)}</time>`;
}

/** Time since, which goes on. @param {{ at?: string | null }} properties */
export function Since({ at }) {
  if (!at) return html`<span class="quiet">–</span>`;
  return html`<time datetime=${at} title=${`since ${clock(at, now.value)}, ${at.slice(0, 19).replace('T', ' ')} UTC`}>${duration(Math.max(0, serverNow.value - Date.parse(at)))}</time>`;
}

/** Time left until a deadline. @param {{ at?: string | null }} properties */
export function Countdown({ at }) {
  if (!at) return html`<span class="quiet">–</span>`;
  const left = Date.parse(at) - serverNow.value;
  return html`<time class=${`countdown ${left < 30_000 ? 'soon' : ''}`} datetime=${at} title=${`at ${clock(at, now.value)}`}>${left > 0 ? countdown(left) : `${duration(-left)} ago`}</time>`;
}

/** Status with its colour. @param {{ status: string }} properties */
export const Status = ({ status }) => html`<span class=${`status ${TONES[status] ?? 'neutral'}`}>${inWords(status)}</span>`;

/** @type {Record<string, string>} */
const TONES = {
  COMPLETED: 'good', COMPENSATED: 'calm', IN_PROGRESS: 'busy', STARTED: 'busy', COMPENSATING: 'busy', TIMED_OUT: 'busy', DEAD_LETTERED: 'bad',
  COMPENSATION_STUCK: 'bad', RESOLVED_MANUALLY: 'calm', PENDING: 'bad', REPLAYING: 'busy', RESOLVED: 'good', DISCARDED: 'calm', ok: 'good', degraded: 'warn',
  down: 'bad', unknown: 'neutral', BALANCED: 'good', UNBALANCED: 'bad', IN_FLIGHT: 'busy', INCOMPLETE: 'warn', CANARY: 'busy', RUNNING: 'busy', PAUSED: 'warn',
  STOPPED: 'bad', CANCELLED: 'calm', DONE: 'good', OPEN: 'bad', HALF_OPEN: 'warn', FORCED_OPEN: 'bad', FORCED_CLOSED: 'warn', CLOSED: 'good',
};

/** Id, shortened, whole in its title. @param {{ id: string, to?: string }} properties */
export const Id = ({ id, to }) => (to ? html`<${Link} class="id" href=${to} title=${id}>${shortId(id)}<//>` : html`<span class="id" title=${id}>${shortId(id)}</span>`);

/** Text to copy. @param {{ text: string, label?: string }} properties */
export function Copy({ text, label = 'Copy' }) {
  const [isCopied, setCopied] = useState(false);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      // Without a secure origin there is no clipboard.
      const area = document.createElement('textarea');
      area.value = text;
      document.body.append(area);
      area.select();
      document.execCommand('copy');
      area.remove();
    }
    setCopied(true);
    setTimeout(() => setCopied(false), 1500);
  };
  return html`<button type="button" class="plain" onClick=${copy} aria-live="polite">${isCopied ? 'Copied' : label}</button>`;
}

/** Command line to copy. @param {{ command: string }} properties */
export const Command = ({ command }) => html`<span class="command"><code>sagactl ${command}</code><${Copy} text=${`sagactl ${command}`} /></span>`;

/** @param {{ title: any, children: any, actions?: any, class?: string }} properties */
export function Panel({ title, children, actions, class: name = '' }) {
  const id = useId();
  return html`<section class=${`panel ${name}`} aria-labelledby=${id}><header><h2 id=${id}>${title}</h2>${actions}</header>${children}</section>`;
}

/**
 * Button for a change. Who may not make it learns why.
 * @param {{ needs?: string, off?: string, kind?: string, onClick: () => unknown, children: any }} properties off: why it is off now
 */
export function Action({ needs = 'operator', off = '', kind = '', onClick, children }) {
  const id = useId();
  const reason = denial(needs) || off;
  if (!reason) return html`<button type="button" class=${kind} onClick=${onClick}>${children}</button>`;
  return html`<span class="denied"><button type="button" class=${kind} aria-disabled="true" aria-describedby=${id} onClick=${(/** @type {Event} */ event) => event.preventDefault()}>${children}</button><span id=${id} class="why" role="note">${reason}</span></span>`;
}

/** What went wrong. @param {{ problem: unknown }} properties */
export const Failure = ({ problem }) => (problem ? html`<p class="failure" role="alert">${messageOf(problem)}</p>` : null);

/** Messages at the edge of the screen. @type {import('../vendor/signals.js').Signal<{ id: number, text: string, isBad: boolean }[]>} */
const messages = signal([]);
let nextMessage = 1;

/** @param {string} text @param {{ isBad?: boolean }} [options] */
export function tell(text, { isBad = false } = {}) {
  const id = nextMessage++;
  messages.value = [...messages.value, { id, text, isBad }];
  setTimeout(() => { messages.value = messages.value.filter((one) => one.id !== id); }, isBad ? 12_000 : 6_000);
}

export const Messages = () => html`<div class="messages" role="status" aria-live="polite">${messages.value.map((one) => html`<p key=${one.id} class=${one.isBad ? 'failure' : ''}>${one.text}</p>`)}</div>`;

/** The dialog that is open. @type {import('../vendor/signals.js').Signal<any>} */
const openDialog = signal(null);

/** Opens a dialog. @param {() => any} content */
export const show = (content) => { openDialog.value = content; };
export const close = () => { openDialog.value = null; };
export const isDialogOpen = () => openDialog.value !== null;

export function Dialogs() {
  const element = useRef(/** @type {HTMLDialogElement | null} */ (null));
  const content = openDialog.value;
  // Not over another screen, nor for who signs in next.
  useEffect(() => close, [route.value]);
  useEffect(() => { if (content && !element.current?.open) element.current?.showModal(); }, [content]);
  if (!content) return null;
  return html`<dialog ref=${element} onClose=${close} onCancel=${close}>${html`<${content} />`}</dialog>`;
}

/** Whether a component is still shown. */
export function useShown() {
  const isShown = useRef(true);
  useEffect(() => () => { isShown.current = false; }, []);
  return isShown;
}

/**
 * Change that the form of a dialog makes: once at a time. How it went is told also when the dialog was closed meanwhile.
 * @param {{ title: string, run: (values: Record<string, string>) => Promise<unknown>, done?: (answer: any) => string }} change
 */
export function useChange({ title, run, done }) {
  const [state, setState] = useState(/** @type {{ isRunning: boolean, problem: unknown }} */ ({ isRunning: false, problem: null }));
  const isAsked = useRef(false), isShown = useShown();
  const submit = async (/** @type {SubmitEvent} */ event) => {
    event.preventDefault();
    if (isAsked.current) return;
    isAsked.current = true;
    const values = /** @type {Record<string, string>} */ (Object.fromEntries(new FormData(/** @type {HTMLFormElement} */ (event.currentTarget))));
    if (values.operator) setOperator(values.operator);
    setState({ isRunning: true, problem: null });
    try {
      const answer = await run(values);
      if (isShown.current) close();
      if (done) tell(done(answer));
    } catch (problem) {
      isAsked.current = false;
      if (isShown.current) setState({ isRunning: false, problem });
      else tell(`${title}: ${messageOf(problem)}`, { isBad: true });
    }
  };
  return { ...state, submit };
}

/**
 * Asks for the reason of a change, says exactly what it will do, and makes it.
 * @param {{ title: string, effect: any, label: string, run: (reason: string, values: Record<string, string>) => Promise<unknown>, done?: (answer: any) => string,
 *   isReasonRequired?: boolean, fields?: any, kind?: string }} change fields: further inputs of the form, read by their names
 */
export function confirmChange({ title, effect, label, run, done, isReasonRequired = false, fields = null, kind = 'primary' }) {
  function Change() {
    const id = useId();
    const { isRunning, problem, submit } = useChange({ title, done, run: (values) => run((values.reason ?? '').trim(), values) });
    const asksName = session.value && !session.value.requires_token && !operator.value;
    return html`<form onSubmit=${submit}>
      <h2>${title}</h2>
      <div class="effect">${effect}</div>
      ${fields}
      ${asksName && html`<label for=${`${id}n`}>Your name, for the audit log</label><input id=${`${id}n`} name="operator" maxlength="100" pattern="[!-~]([ -~]*[!-~])?" required=${session.value?.requires_operator} autocomplete="username" />`}
      <label for=${`${id}r`}>Reason${isReasonRequired ? '' : ' (optional)'}</label>
      <input id=${`${id}r`} name="reason" maxlength="500" required=${isReasonRequired} autocomplete="off" />
      <${Failure} problem=${problem} />
      <footer><button type="button" onClick=${close}>Back</button><button class=${kind} disabled=${isRunning}>${isRunning ? 'Working…' : label}</button></footer>
    </form>`;
  }
  show(Change);
}

/** Time from now on, as the field `minutes` of a form. @param {{ label?: string, least?: number, most?: number, value?: number }} properties */
export function Minutes({ label = 'Minutes from now', least = 1, most = 1440, value = 15 }) {
  const id = useId();
  return html`<label for=${id}>${label}</label><input id=${id} name="minutes" type="number" min=${least} max=${most} defaultValue=${value} required />`;
}

/** Seconds of the field `minutes`. @param {Record<string, string>} values */
export const secondsOf = ({ minutes }) => 60 * Number(minutes);

/**
 * Loads what a screen shows, again when its key changes.
 * @template T
 * @param {string} key @param {(abort: AbortSignal) => Promise<T>} load @param {number} [refresh] milliseconds between two loads; 0 for one only
 * @returns {{ data: T | null, problem: unknown, reload: () => void }}
 */
export function useLoaded(key, load, refresh = 0) {
  const [state, setState] = useState(/** @type {{ key: string, data: T | null, problem: unknown }} */ ({ key, data: null, problem: null }));
  const [round, setRound] = useState(0);
  useEffect(() => {
    const abort = new AbortController();
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    let timer;
    const run = async () => {
      try {
        const data = await load(abort.signal);
        if (!abort.signal.aborted) setState({ key, data, problem: null });
      } catch (problem) {
        // What was loaded before stays, with the problem beside it.
        if (!abort.signal.aborted) setState((before) => ({ key, data: before.key === key ? before.data : null, problem }));
      }
      if (refresh > 0 && !abort.signal.aborted) timer = setTimeout(run, refresh);
    };
    run();
    return () => { abort.abort(); clearTimeout(timer); };
  }, [key, round]);
  const isCurrent = state.key === key;
  return { data: isCurrent ? state.data : null, problem: isCurrent ? state.problem : null, reload: () => setRound((before) => before + 1) };
}

/** Link to a saga. @param {{ id: string }} properties */
export const OrderLink = ({ id }) => html`<${Id} id=${id} to=${`/orders/${id}`} />`;

/** Link to dead letters. @param {{ children: any, filter: Record<string, string> }} properties */
export const DeadLettersLink = ({ children, filter }) => html`<${Link} href=${address('/dead-letters', filter)}>${children}<//>`;

/** Whether an error is that nothing was found. @param {unknown} problem */
export const isNotFound = (problem) => problem instanceof Problem && problem.status === 404;
