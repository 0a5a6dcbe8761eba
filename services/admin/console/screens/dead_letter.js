// DeadLetter.
import { html } from '../lib/html.js';

export const DeadLetter = () => html`<h1>DeadLetter</h1>`;
