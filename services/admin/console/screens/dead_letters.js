// DeadLetters.
import { html } from '../lib/html.js';

export const DeadLetters = () => html`<h1>DeadLetters</h1>`;
