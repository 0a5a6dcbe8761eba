// The address bar: screens are paths, and what they show is in the query, so that each view has a link.
import { html, signal } from './html.js';

/** @returns {{ path: string, query: URLSearchParams }} */
const current = () => ({ path: location.pathname.replace(/(.)\/$/, '$1'), query: new URLSearchParams(location.search) });

export const route = signal(current());

addEventListener('popstate', () => { route.value = current(); });

/**
 * Goes to an address of the console.
 * @param {string} address
 * @param {{ replace?: boolean }} [options] replace: the view before is not one to go back to
 */
export function go(address, { replace = false } = {}) {
  history[replace ? 'replaceState' : 'pushState'](null, '', address);
  const before = route.value.path;
  route.value = current();
  if (before !== route.value.path) {
    scrollTo(0, 0);
    document.querySelector('main')?.focus({ preventScroll: true });
  }
}

/** Text of an encoded part of a path; as it stands where it is no valid encoding. @param {string} part */
export function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/**
 * Address with these parameters; empty ones are left out.
 * @param {string} path
 * @param {Record<string, string | number | boolean | null | undefined>} [parameters]
 */
export function address(path, parameters = {}) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) {
    if (value !== undefined && value !== null && value !== '' && value !== false) query.set(name, String(value));
  }
  return query.size > 0 ? `${path}?${query}` : path;
}

/** @param {MouseEvent} event */
function follow(event) {
  const link = /** @type {HTMLAnchorElement} */ (event.currentTarget);
  if (event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  event.preventDefault();
  go(link.pathname + link.search);
}

/** Link to a screen. @param {Record<string, any>} properties */
export const Link = ({ children, ...rest }) => html`<a ...${rest} onClick=${follow}>${children}</a>`;
