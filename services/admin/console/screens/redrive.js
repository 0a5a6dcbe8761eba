// Redrive.
import { html } from '../lib/html.js';

export const Redrive = () => html`<h1>Redrive</h1>`;
