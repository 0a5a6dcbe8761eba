// Orders.
import { html } from '../lib/html.js';

export const Orders = () => html`<h1>Orders</h1>`;
