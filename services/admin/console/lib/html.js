// What screens build with: templates, hooks and signals.
import { Fragment, h, render } from '../vendor/preact.js';
import htm from '../vendor/htm.js';

export { Fragment, render };
export { useEffect, useErrorBoundary, useId, useMemo, useRef, useState } from '../vendor/preact-hooks.js';
export { batch, computed, effect, signal, useComputed, useSignal } from '../vendor/signals.js';

export const html = htm.bind(h);
