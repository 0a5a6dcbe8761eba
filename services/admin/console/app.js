// The console: the frame around the screens.
import { openSession, operator, session, setOperator, setToken, signInReason, signOut } from './lib/api.js';
import { html, render, signal, useEffect, useErrorBoundary, useId, useState } from './lib/html.js';
import { connection, follow, isBrokerAway, overview, readAt, staleness } from './lib/live.js';
import { decoded, Link, route } from './lib/router.js';
import { Dialogs, Failure, Messages, Since, useLoaded } from './lib/ui.js';
import { RunningFaults } from './screens/map/faults.js';
import { Now } from './screens/now.js';

/** Screens of the navigation. All but the first are loaded when they are opened. @type {{ path: string, title: string, load: () => Promise<any> }[]} */
const SCREENS = [
  { path: '/', title: 'Now', load: async () => Now },
  { path: '/orders', title: 'Orders', load: async () => (await import('./screens/orders/orders.js')).Orders },
  { path: '/dead-letters', title: 'Dead letters', load: async () => (await import('./screens/dead_letters/dead_letters.js')).DeadLetters },
  { path: '/map', title: 'Map', load: async () => (await import('./screens/map/map.js')).SystemMap },
  { path: '/books', title: 'Books', load: async () => (await import('./screens/books/books.js')).Books },
  { path: '/activity', title: 'Activity', load: async () => (await import('./screens/activity/activity.js')).Activity },
];

/** Screens with an id in their path. @type {{ prefix: string, title: string, load: () => Promise<any> }[]} */
const DETAILS = [
  { prefix: '/orders/', title: 'Order', load: async () => (await import('./screens/order/order.js')).Order },
  { prefix: '/dead-letters/', title: 'Dead letter', load: async () => (await import('./screens/dead_letter/dead_letter.js')).DeadLetter },
  { prefix: '/redrives/', title: 'Redrive', load: async () => (await import('./screens/redrive/redrive.js')).Redrive },
];

/** A screen that fails leaves the frame, and the way to the other screens. @param {{ children: any }} properties */
function Guard({ children }) {
  const [problem, retry] = useErrorBoundary((error) => console.error(error));
  const { path, query } = route.value;
  useEffect(() => { if (problem) retry(); }, [path, String(query)]);
  if (!problem) return children;
  return html`<h1>This page cannot be shown</h1><${Failure} problem=${problem} />
    <p>This is a defect of the console. <button type="button" onClick=${retry}>Try again</button></p>`;
}

/** Milliseconds after which a screen that could not be loaded is loaded again. */
const LOAD_AGAIN = 2_000;

/** Shows a screen once it is loaded. @param {{ load: () => Promise<any>, id?: string }} properties */
function Screen({ load, id }) {
  const { data: Loaded, problem, reload } = useLoaded(load.toString(), load);
  useEffect(() => {
    const timer = problem ? setTimeout(reload, LOAD_AGAIN) : undefined;
    return () => clearTimeout(timer);
  }, [problem]);
  if (problem) return html`<h1>This page could not be loaded</h1><${Failure} problem=${problem} />`;
  return Loaded ? html`<${Loaded} id=${id} />` : html`<p class="loading">Loading…</p>`;
}

const startProblem = signal(/** @type {unknown} */ (null));

function SignIn() {
  const id = useId();
  const submit = async (/** @type {SubmitEvent} */ event) => {
    event.preventDefault();
    const form = new FormData(/** @type {HTMLFormElement} */ (event.currentTarget));
    const isAnother = session.value !== null;
    setToken(String(form.get('token')).trim());
    await start();
    // The stream and what was read are of the token before.
    if (isAnother && signInReason.value === null) location.reload();
  };
  return html`<main class="sign-in" tabindex="-1"><form onSubmit=${submit}>
    <h1>Sign in</h1>
    <p>This system accepts requests with a token only. An administrator issues one: <code>sagactl token create NAME --role operator</code></p>
    <label for=${id}>Token</label>
    <input id=${id} name="token" type="password" required autofocus autocomplete="current-password" spellcheck="false" />
    <${Failure} problem=${signInReason.value} />
    <footer><button class="primary">Sign in</button></footer>
    <p class="quiet">The token stays in this tab, and is forgotten when the tab is closed.</p>
  </form></main>`;
}

/** Who the caller is. Without tokens, the name that the audit log gets. */
function Who() {
  const [isOpen, setOpen] = useState(false);
  const id = useId();
  const known = session.value;
  if (!known) return null;
  if (known.requires_token) {
    return html`<span class="who"><b>${known.name}</b> ${known.role} <button type="button" class="plain" onClick=${signOut}>Sign out</button></span>`;
  }
  if (!isOpen) return html`<button type="button" class="plain who" onClick=${() => setOpen(true)} title="Name in the audit log">${operator.value || 'Your name?'}</button>`;
  const save = (/** @type {SubmitEvent} */ event) => {
    event.preventDefault();
    setOperator(String(new FormData(/** @type {HTMLFormElement} */ (event.currentTarget)).get('name')));
    setOpen(false);
  };
  return html`<form class="who" onSubmit=${save}><label for=${id} class="hidden">Your name, for the audit log</label><input id=${id} name="name" maxlength="100" pattern="[!-~]([ -~]*[!-~])?" value=${operator.value} autofocus placeholder="Your name" /><button>Save</button></form>`;
}

function Connection() {
  const stale = staleness.value;
  if (connection.value === 'connecting') return html`<span class="live"><i class="light neutral"></i>connecting</span>`;
  if (!stale && isBrokerAway.value) {
    return html`<span class="live bad" role="alert"><i class="light bad"></i>no broker: newer orders and dead letters are unknown</span>`;
  }
  if (!stale) return html`<span class="live" title="The page shows what happens as it happens"><i class="light good"></i>live</span>`;
  const age = readAt.value === null ? null : new Date(readAt.value).toISOString();
  return html`<span class="live bad" role="alert"><i class="light bad"></i>${stale}${age && html`; what you see is <${Since} at=${age} /> old`}</span>`;
}

function Frame() {
  const { path } = route.value;
  const detail = DETAILS.find((one) => path.startsWith(one.prefix) && path.length > one.prefix.length);
  const at = SCREENS.find((one) => one.path === path);
  const found = detail ?? at;
  const findings = (overview.value?.findings ?? []).filter((one) => !one.to_clean_up).length;
  useEffect(() => { document.title = `${findings > 0 ? `(${findings}) ` : ''}${found?.title ?? 'Not found'} · ${session.value?.system ?? 'saga'}`; }, [findings, found, session.value]);
  const isHere = (/** @type {{ path: string }} */ one) => one === at || (detail && detail.prefix.startsWith(`${one.path}/`));
  return html`
    <a class="skip" href="#main">Skip to the content</a>
    <header class="top">
      <b class="system">${session.value?.system}</b>
      <nav aria-label="Screens">${SCREENS.map((one) => html`<${Link} key=${one.path} href=${one.path} aria-current=${isHere(one) ? 'page' : null}>${one.title}${one.path === '/' && findings > 0 && html` <span class="badge">${findings}</span>`}<//>`)}</nav>
      <${Connection} /><${Who} /><${RunningFaults} />
    </header>
    <main id="main" tabindex="-1" class=${staleness.value ? 'stale' : ''}>${found ? html`<${Guard} key=${path}><${Screen} load=${found.load} id=${detail ? decoded(path.slice(detail.prefix.length)) : undefined} /><//>` : html`<h1>Nothing is here</h1><p>There is no page ${path}. <${Link} href="/">See what happens now<//></p>`}</main>`;
}

function App() {
  if (signInReason.value !== null) return html`<${SignIn} />`;
  if (startProblem.value) return html`<main><h1>Admin does not answer</h1><${Failure} problem=${startProblem.value} /></main>`;
  if (!session.value) return html`<p class="loading">Loading…</p>`;
  return html`<${Frame} /><${Dialogs} /><${Messages} />`;
}

async function start() {
  try {
    await openSession();
    startProblem.value = null;
  } catch (problem) {
    startProblem.value = problem;
    setTimeout(start, 2_000);
  }
}

render(html`<${App} />`, /** @type {HTMLElement} */ (document.getElementById('app')));
start();
follow();
