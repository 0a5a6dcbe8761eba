// Books.
import { html } from '../lib/html.js';

export const Books = () => html`<h1>Books</h1>`;
