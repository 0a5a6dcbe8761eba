// Activity.
import { html } from '../lib/html.js';

export const Activity = () => html`<h1>Activity</h1>`;
