// The form of a note, which is longer than a reason.
import { operator, session } from '../../lib/api.js';
import { html, useId, useState } from '../../lib/html.js';
import { close, Failure, show, useChange } from '../../lib/ui.js';

/**
 * Asks for a note, and adds it.
 * @param {{ effect: any, run: (text: string) => Promise<any>, done: (answer: any) => string }} note
 */
export function askNote({ effect, run, done }) {
  function Note() {
    const id = useId();
    const { isRunning, problem, submit } = useChange({ title: 'Add a note', done, run: (values) => run((values.text ?? '').trim()) });
    return html`<form onSubmit=${submit}>
      <h2>Add a note</h2><div class="effect">${effect}</div><${OperatorField} />
      <label for=${id}>Note, one line</label><input id=${id} name="text" maxlength="2000" required autofocus autocomplete="off" />
      <${Failure} problem=${problem} />
      <footer><button type="button" onClick=${close}>Back</button>
        <button class="primary" disabled=${isRunning}>${isRunning ? 'Working…' : 'Add the note'}</button></footer>
    </form>`;
  }
  show(Note);
}

/** Asks for the name of the operator where there is none yet. It is `operator` in the form. */
export function OperatorField() {
  const id = useId();
  const [isAsked] = useState(Boolean(session.value && !session.value.requires_token && !operator.value));
  if (!isAsked) return null;
  return html`<label for=${id}>Your name, for the audit log</label>
    <input id=${id} name="operator" maxlength="100" pattern="[!-~]([ -~]*[!-~])?" required=${session.value?.requires_operator} autocomplete="username" />`;
}
