// Order.
import { html } from '../lib/html.js';

export const Order = () => html`<h1>Order</h1>`;
