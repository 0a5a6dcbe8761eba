// Map.
import { html } from '../lib/html.js';

export const SystemMap = () => html`<h1>Map</h1>`;
