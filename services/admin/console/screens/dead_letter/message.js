// The message of a dead letter: as a tree or as text, with its envelope and headers.
import { counted, number } from '../../lib/format.js';
import { html, useState } from '../../lib/html.js';
import { Copy, Panel } from '../../lib/ui.js';

/** @typedef {import('../../types.js').DeadLetterDetail} DeadLetterDetail */

/** Depth that is open at first. */
const OPEN = 3;

/** Text of a payload in base64. @param {string} base64 */
export const decoded = (base64) => new TextDecoder().decode(Uint8Array.from(atob(base64), (one) => one.charCodeAt(0)));

/** Whether the message is JSON. @param {DeadLetterDetail} letter */
export const isJson = (letter) => letter.payload !== null || decoded(letter.payload_base64).trim() === 'null';

/** @param {{ letter: DeadLetterDetail }} properties */
export function Message({ letter }) {
  const [isText, setText] = useState(false);
  const isParsed = isJson(letter);
  const text = isParsed ? JSON.stringify(letter.payload, null, 2) : decoded(letter.payload_base64);
  const { data, ...envelope } = /** @type {Record<string, unknown>} */ (isObject(letter.payload) ? letter.payload : {});
  const isEnvelope = isObject(letter.payload) && data !== undefined;
  const actions = html`<span><button type="button" class="plain" aria-pressed=${isText}
    onClick=${() => setText(!isText)}>${isText ? 'Show the tree' : 'Show the text'}</button><${Copy} text=${text} /></span>`;
  return html`<${Panel} title="Message" class="message" actions=${actions}>
    ${letter.payload_base64 === '' && html`<p class="warn">The message was too large to be published. Only its service has it.</p>`}
    ${!isParsed && letter.payload_base64 !== '' && html`<p class="warn">This is not JSON.</p>`}
    ${isText || !isParsed ? html`<pre tabindex="0" aria-label="Message">${text}</pre>` : isEnvelope ? html`<h3>Data</h3><${Tree} value=${data} />
      <h3>Envelope</h3><${Tree} value=${envelope} />` : html`<${Tree} value=${letter.payload} />`}
    <${Delivery} letter=${letter} />
    ${letter.original && html`<details><summary>The message before it was edited</summary>
      <pre tabindex="0">${pretty(decoded(letter.original.payload_base64))}</pre></details>`}
  <//>`;
}

/** @param {string} text */
function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

/** @param {unknown} value */
const isObject = (value) => typeof value === 'object' && value !== null && !Array.isArray(value);

/** Position and headers at the broker. @param {{ letter: DeadLetterDetail }} properties */
function Delivery({ letter }) {
  const { delivery } = letter;
  if (!delivery) return letter.origin === 'task' ? html`<p class="quiet">A call, which no broker delivered.</p>` : null;
  return html`<h3>Delivery</h3><dl class="pairs">
    <div><dt>Stream</dt><dd>${delivery.stream} <small>at ${number(delivery.sequence)}</small></dd></div>
    ${delivery.subject && html`<div><dt>Subject</dt><dd><code>${delivery.subject}</code></dd></div>`}
    ${(delivery.headers ?? []).map(([name, value], index) => html`<div key=${index}><dt>${name}</dt><dd><code>${value}</code></dd></div>`)}
  </dl>`;
}

/** Value as a tree that opens and closes. @param {{ value: unknown, depth?: number }} properties */
function Tree({ value, depth = 0 }) {
  if (typeof value !== 'object' || value === null) return html`<${Leaf} value=${value} />`;
  const entries = Object.entries(value);
  return html`<ul class="tree">${entries.map(([name, child]) => html`<li key=${name}>
    <${Branch} name=${Array.isArray(value) ? `[${name}]` : name} value=${child} depth=${depth} /></li>`)}</ul>`;
}

/** @param {{ name: string, value: unknown, depth: number }} properties */
function Branch({ name, value, depth }) {
  if (typeof value !== 'object' || value === null || Object.keys(value).length === 0) return html`<span class="name">${name}</span> <${Leaf} value=${value} />`;
  const size = Object.keys(value).length;
  return html`<details open=${depth < OPEN}><summary>
    <span class="name">${name}</span> <small>${Array.isArray(value) ? counted(size, 'item') : counted(size, 'member')}</small></summary>
    <${Tree} value=${value} depth=${depth + 1} /></details>`;
}

/** @param {{ value: unknown }} properties */
const Leaf = ({ value }) => html`<code class=${`leaf ${value === null ? 'null' : typeof value}`}>${JSON.stringify(value)}</code>`;
