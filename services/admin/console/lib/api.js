// Requests to admin's API. The token lives in the session storage of this tab. So does the name of the operator; new tabs begin with the last one.
import { signal } from './html.js';

/** @typedef {import('../types.js').Session} Session */

const TOKEN = 'saga-token', OPERATOR = 'saga-operator';

/** A link may carry a token behind `#token=`, which is never sent to a server. It leaves the address bar at once. */
const inLink = new URLSearchParams(location.hash.slice(1)).get('token');
if (inLink) {
  sessionStorage.setItem(TOKEN, inLink);
  history.replaceState(null, '', location.pathname + location.search);
}

export const token = signal(sessionStorage.getItem(TOKEN));
export const operator = signal(sessionStorage.getItem(OPERATOR) ?? localStorage.getItem(OPERATOR) ?? '');
/** What the caller may do; null until admin has answered. @type {import('../vendor/signals.js').Signal<Session | null>} */
export const session = signal(null);
/** Why the caller has to sign in; null if not. @type {import('../vendor/signals.js').Signal<string | null>} */
export const signInReason = signal(null);

/** @param {string} name */
export function setOperator(name) {
  operator.value = name.trim();
  sessionStorage.setItem(OPERATOR, operator.value);
  localStorage.setItem(OPERATOR, operator.value);
}

/** @param {string | null} value */
export function setToken(value) {
  token.value = value;
  if (value) sessionStorage.setItem(TOKEN, value);
  else sessionStorage.removeItem(TOKEN);
}

/** Ends the session with all that runs and is known in this tab. */
export function signOut() {
  // The stream and what was read are of this token.
  sessionStorage.removeItem(TOKEN);
  location.reload();
}

/** An answer other than a success, or none. */
export class Problem extends Error {
  /** @param {number} status 0 if there was no answer @param {string} detail @param {any} [body] */
  constructor(status, detail, body = {}) {
    super(detail);
    this.status = status;
    this.body = body;
  }
}

/** @param {Record<string, string>} [more] */
export function headers(more = {}) {
  const given = { ...more };
  if (token.value) given.authorization = `Bearer ${token.value}`;
  // Names beyond ASCII cannot stand in a header.
  if (/^[!-~]([ -~]*[!-~])?$/.test(operator.value)) given['x-operator'] = operator.value;
  return given;
}

/**
 * @param {string} method @param {string} path @param {unknown} [body] @param {AbortSignal} [abort]
 * @returns {Promise<any>}
 */
async function request(method, path, body, abort) {
  /** @type {Record<string, string>} */
  const json = body === undefined ? {} : { 'content-type': 'application/json' };
  let response;
  try {
    response = await fetch(path, { method, headers: headers(json), body: body === undefined ? undefined : JSON.stringify(body), signal: abort });
  } catch (error) {
    if (abort?.aborted) throw error;
    throw new Problem(0, `admin does not answer${method === 'GET' ? '' : ': it is not known whether the change was made'}`);
  }
  if (response.status === 204) return null;
  const answer = await response.json().catch(() => ({}));
  if (response.ok) return answer;
  const fields = (answer.errors ?? []).map((/** @type {any} */ one) => `${one.field} ${one.detail}`).join('; ');
  const problem = new Problem(response.status, fields || answer.detail || `admin answered ${response.status}`, answer);
  if (response.status === 401) signInReason.value = token.value ? problem.message : '';
  throw problem;
}

/** @param {string} path @param {AbortSignal} [abort] */
export const get = (path, abort) => request('GET', path, undefined, abort);
/** @param {string} path @param {unknown} [body] */
export const post = (path, body = {}) => request('POST', path, body);
/** @param {string} path */
export const remove = (path) => request('DELETE', path);

/** Learns what the caller may do. Returns false if it has to sign in. */
export async function openSession() {
  try {
    session.value = await get('/api/admin/session');
    signInReason.value = null;
    return true;
  } catch (problem) {
    if (problem instanceof Problem && problem.status === 401) return false;
    throw problem;
  }
}

const ROLES = ['viewer', 'operator', 'admin'];

/** Why the caller may not do what needs a role; empty if it may. @param {string} needed */
export function denial(needed) {
  const role = session.value?.role ?? 'viewer';
  return ROLES.indexOf(role) >= ROLES.indexOf(needed) ? '' : `needs the role ${needed}; you are ${role}`;
}
