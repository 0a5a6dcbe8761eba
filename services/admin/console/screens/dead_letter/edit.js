// Editing the message of a dead letter: JSON with a live difference, a check by admin, and the replay.
import { denial, post, setOperator } from '../../lib/api.js';
import { counted, messageOf } from '../../lib/format.js';
import { html, useEffect, useId, useMemo, useState } from '../../lib/html.js';
import { go } from '../../lib/router.js';
import { Action, Failure, Panel, tell, useShown } from '../../lib/ui.js';
import { lineDiff } from './diff.js';
import { decoded, isJson } from './message.js';
import { needsForce } from '../dead_letters/words.js';
import { OperatorField } from '../dead_letters/note.js';

/** @typedef {import('../../types.js').DeadLetterDetail} DeadLetterDetail @typedef {import('../../types.js').Schemas['EditedMember']} EditedMember */

/** Milliseconds after the last key until admin checks the edit. */
const PAUSE = 600;

/** What is edited: the data of an envelope, or all of it. @typedef {'data' | 'payload'} Part */

/** @param {{ letter: DeadLetterDetail, changed: () => void }} properties */
export function DeadLetterEdit({ letter: newest, changed }) {
  const id = useId();
  // The edit is of this version: admin rejects it when the dead letter has changed meanwhile.
  const [letter] = useState(newest);
  const payload = /** @type {any} */ (letter.payload);
  const hasData = payload !== null && typeof payload === 'object' && payload.data !== undefined;
  const [part, setPart] = useState(/** @type {Part} */ (hasData ? 'data' : 'payload'));
  const before = useMemo(() => textOf(letter, part), [part]);
  const [text, setText] = useState(before);
  const parsed = useMemo(() => parse(text), [text]);
  const check = useCheck(letter, part, text, parsed, text !== before);
  const typed = (/** @type {InputEvent} */ event) => setText(/** @type {HTMLTextAreaElement} */ (event.currentTarget).value);
  const choose = (/** @type {Part} */ next) => { setPart(next); setText(textOf(letter, next)); };
  const lines = useMemo(() => lineDiff(before, parsed.problem ? text : JSON.stringify(parsed.value, null, 2)), [before, text]);
  return html`<${Panel} title="Edit and replay" actions=${html`<button type="button" class="plain"
    onClick=${() => go(`/dead-letters/${letter.id}`)}>Leave without a change</button>`}>
    <p>The edited message gets an id of its own, and is replayed at ${letter.step} of ${letter.service}. The first message is kept.
      A card token that is <code>***</code> stays what it was.</p>
    ${newest.version !== letter.version && html`<p class="warn">The dead letter has changed since you began. Leave, and begin again.</p>`}
    ${hasData && html`<fieldset class="choice"><legend class="hidden">Part to edit</legend>
      <label class="check"><input type="radio" name=${`${id}p`} checked=${part === 'data'} onChange=${() => choose('data')} /> The data</label>
      <label class="check"><input type="radio" name=${`${id}p`} checked=${part === 'payload'}
        onChange=${() => choose('payload')} /> The whole envelope</label></fieldset>`}
    <div class="columns edit">
      <div><label for=${id}>${part === 'data' ? 'Data' : 'Envelope'} as JSON</label>
        <textarea id=${id} rows=${Math.min(32, before.split('\n').length + 3)} spellcheck="false" value=${text}
          onInput=${typed} aria-invalid=${Boolean(parsed.problem)} aria-describedby=${`${id}e`}></textarea>
        <div id=${`${id}e`} role="status">${parsed.problem ? html`<p class="failure">${parsed.problem}</p>` : text !== before
          && html`<p class="quiet">Valid JSON. <button type="button" class="plain"
            onClick=${() => setText(JSON.stringify(parsed.value, null, 2))}>Format</button> <button type="button" class="plain"
            onClick=${() => setText(before)}>Undo all</button></p>`}</div>
      </div>
      <div><h3>Difference</h3><${Difference} lines=${lines} /></div>
    </div>
    <${Check} check=${check} isChanged=${text !== before} isValid=${!parsed.problem} />
    <${Replay} letter=${letter} part=${part} value=${parsed.value} off=${offReason(parsed.problem, text === before, check)} changed=${changed} />
  <//>`;
}

/** @param {string} problem @param {boolean} isSame @param {CheckState} check */
function offReason(problem, isSame, check) {
  if (problem) return 'it is not valid JSON';
  if (isSame) return 'nothing is changed yet: use Replay instead';
  if (check.problem) return 'admin rejects this edit';
  return check.changes ? '' : 'admin checks it';
}

/** @param {DeadLetterDetail} letter @param {Part} part */
function textOf(letter, part) {
  if (!isJson(letter)) return decoded(letter.payload_base64);
  const payload = /** @type {any} */ (letter.payload);
  return JSON.stringify(part === 'data' ? payload.data : payload, null, 2);
}

/** Reads JSON. Numbers that this browser would change are a problem. @param {string} text @returns {{ value: unknown, problem: string }} */
function parse(text) {
  try {
    const value = JSON.parse(text);
    const wide = text.replace(/"(?:[^"\\]|\\.)*"/g, '""').match(/-?\d{16,}/g)?.find((digits) => !Number.isSafeInteger(Number(digits)));
    return { value, problem: wide ? `The browser cannot keep the number ${wide} exactly. Use sagactl dlq edit.` : '' };
  } catch (error) {
    return { value: undefined, problem: withLine(text, messageOf(error)) };
  }
}

/** Adds the line to an error that has a position only. @param {string} text @param {string} problem */
function withLine(text, problem) {
  const position = /at position (\d+)/.exec(problem)?.[1];
  if (!position || problem.includes('line ')) return problem;
  const before = text.slice(0, Number(position)).split('\n');
  return `${problem}: line ${before.length}, column ${before[before.length - 1].length + 1}`;
}

/** @typedef {{ changes: EditedMember[] | null, problem: unknown }} CheckState */

/**
 * Admin's own check, a moment after the last key.
 * @param {DeadLetterDetail} letter @param {Part} part @param {string} text @param {{ value: unknown, problem: string }} parsed @param {boolean} isChanged
 */
function useCheck(letter, part, text, parsed, isChanged) {
  const [state, setState] = useState(/** @type {CheckState} */ ({ changes: null, problem: null }));
  useEffect(() => {
    setState({ changes: null, problem: null });
    if (!isChanged || parsed.problem || denial('admin')) return undefined;
    let isCurrent = true;
    const timer = setTimeout(async () => {
      try {
        const answer = await post(`/api/admin/dlq/${letter.id}/edit`, { [part]: parsed.value, preview: true, version: letter.version });
        if (isCurrent) setState({ changes: answer.changes, problem: null });
      } catch (problem) {
        if (isCurrent) setState({ changes: null, problem });
      }
    }, PAUSE);
    return () => { isCurrent = false; clearTimeout(timer); };
  }, [text, part]);
  return state;
}

/** Lines around each change. */
const AROUND = 3;

/** @param {{ lines: import('./diff.js').Line[] }} properties */
function Difference({ lines }) {
  const isNear = (/** @type {number} */ index) => lines.slice(Math.max(0, index - AROUND), index + AROUND + 1).some((one) => one.kind !== 'same');
  const removed = lines.filter((one) => one.kind === 'removed').length, added = lines.filter((one) => one.kind === 'added').length;
  if (removed + added === 0) return html`<p class="quiet">Nothing is changed yet.</p>`;
  const signs = { same: ' ', removed: '-', added: '+' }, names = { same: '', removed: 'removed', added: 'added' };
  return html`<p class="quiet">${counted(removed, 'line')} removed, ${added} added</p>
    <div class="diff" role="group" aria-label="Difference" tabindex="0">${lines.map((line, index) => (isNear(index)
      ? html`<div key=${index} class=${line.kind}><span aria-label=${names[line.kind]}>${signs[line.kind]}</span>${line.text}</div>`
    : index > 0 && isNear(index - 1) ? html`<div key=${index} class="gap">⋯</div>` : null))}</div>`;
}

/** @param {{ check: CheckState, isChanged: boolean, isValid: boolean }} properties */
function Check({ check, isChanged, isValid }) {
  if (!isChanged || !isValid) return null;
  if (check.problem) return html`<h3>Admin's check</h3><${Failure} problem=${check.problem} />`;
  if (!check.changes) return html`<h3>Admin's check</h3><p class="quiet" role="status">Checking…</p>`;
  if (check.changes.length === 0) return html`<h3>Admin's check</h3><p role="status">Admin accepts it. Only the id of the message changes.</p>`;
  const shown = (/** @type {unknown} */ value) => (value === undefined ? html`<span class="quiet">absent</span>` : html`<code>${JSON.stringify(value)}</code>`);
  return html`<h3>Admin's check</h3><p role="status">Admin accepts it. ${counted(check.changes.length, 'member changes', 'members change')}:</p>
    <div class="scroll"><table><thead><tr><th>Member</th><th>Before</th><th>After</th></tr></thead>
    <tbody>${check.changes.map((one) => html`<tr key=${one.path}><td><code>${one.path || 'the whole message'}</code></td><td>${shown(one.before)}</td>
      <td>${JSON.stringify(one.before) === JSON.stringify(one.after) ? html`<span class="quiet">another secret</span>` : shown(one.after)}</td>
      </tr>`)}</tbody></table></div>`;
}

/** @param {{ letter: DeadLetterDetail, part: Part, value: unknown, off: string, changed: () => void }} properties */
function Replay({ letter, part, value, off, changed }) {
  const id = useId();
  const [isRunning, setRunning] = useState(false);
  const [problem, setProblem] = useState(/** @type {unknown} */ (null));
  const isForced = needsForce(letter), isShown = useShown();
  const submit = async (/** @type {SubmitEvent} */ event) => {
    event.preventDefault();
    const values = new FormData(/** @type {HTMLFormElement} */ (event.currentTarget));
    if (off) return;
    if (values.get('operator')) setOperator(String(values.get('operator')));
    setRunning(true);
    setProblem(null);
    try {
      const reason = String(values.get('reason')).trim();
      await post(`/api/admin/dlq/${letter.id}/edit`, { [part]: value, reason, version: letter.version, ...(isForced ? { force: true } : {}) });
      tell('Replaying the edited message');
      if (!isShown.current) return;
      changed();
      go(`/dead-letters/${letter.id}`);
      scrollTo(0, 0);
    } catch (error) {
      if (!isShown.current) tell(`The edited message is not replayed: ${messageOf(error)}`, { isBad: true });
      setProblem(error);
      setRunning(false);
    }
  };
  const denied = denial('admin');
  return html`<form onSubmit=${submit}>
    ${isForced && html`<p class="warn">Three replays have failed, or one is in flight and may be lost. This replay is forced.</p>`}
    <${OperatorField} />
    <label for=${`${id}r`}>Reason</label><input id=${`${id}r`} class="wide" name="reason" maxlength="500" required autocomplete="off" />
    <${Failure} problem=${problem} />
    <footer>${denied || off ? html`<${Action} needs="admin" kind="primary" off=${off} onClick=${() => {}}>Replay the edited message<//>`
      : html`<button class="primary" disabled=${isRunning}>${isRunning ? 'Working…' : 'Replay the edited message'}</button>`}</footer>
  </form>`;
}
