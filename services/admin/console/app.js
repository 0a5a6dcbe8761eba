// The console: the frame around the screens.
import { openSession, operator, session, setOperator, setToken, signInReason } from './lib/api.js';
import { html, render, signal, useEffect, useId, useState } from './lib/html.js';
import { follow, isConnected, overview, readAt, staleness } from './lib/live.js';
import { Link, route } from './lib/router.js';
import { Dialogs, Failure, Messages, Since } from './lib/ui.js';
import { Activity } from './screens/activity.js';
import { Books } from './screens/books.js';
import { DeadLetter } from './screens/dead_letter.js';
import { DeadLetters } from './screens/dead_letters.js';
import { SystemMap } from './screens/map.js';
import { Now } from './screens/now.js';
import { Order } from './screens/order.js';
import { Orders } from './screens/orders.js';
import { Redrive } from './screens/redrive.js';

/** Screens of the navigation. @type {{ path: string, title: string, screen: any }[]} */
const SCREENS = [
  { path: '/', title: 'Now', screen: Now },
  { path: '/orders', title: 'Orders', screen: Orders },
  { path: '/dead-letters', title: 'Dead letters', screen: DeadLetters },
  { path: '/map', title: 'Map', screen: SystemMap },
  { path: '/books', title: 'Books', screen: Books },
  { path: '/activity', title: 'Activity', screen: Activity },
];

/** Screens with an id in their path. @type {{ prefix: string, title: string, screen: any }[]} */
const DETAILS = [
  { prefix: '/orders/', title: 'Order', screen: Order },
  { prefix: '/dead-letters/', title: 'Dead letter', screen: DeadLetter },
  { prefix: '/redrives/', title: 'Redrive', screen: Redrive },
];

const startProblem = signal(/** @type {unknown} */ (null));

function SignIn() {
  const id = useId();
  const submit = async (/** @type {SubmitEvent} */ event) => {
    event.preventDefault();
    const form = new FormData(/** @type {HTMLFormElement} */ (event.currentTarget));
    setToken(String(form.get('token')).trim());
    await start();
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
    return html`<span class="who"><b>${known.name}</b> ${known.role} <button type="button" class="plain" onClick=${() => { setToken(null); session.value = null; signInReason.value = ''; }}>Sign out</button></span>`;
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
  if (isConnected.value && !stale) return html`<span class="live" title="The page shows what happens as it happens"><i class="light good"></i>live</span>`;
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
  const Screen = found?.screen;
  const isHere = (/** @type {{ path: string }} */ one) => one === at || (detail && detail.prefix.startsWith(`${one.path}/`));
  return html`
    <a class="skip" href="#main">Skip to the content</a>
    <header class="top">
      <b class="system">${session.value?.system}</b>
      <nav aria-label="Screens">${SCREENS.map((one) => html`<${Link} key=${one.path} href=${one.path} aria-current=${isHere(one) ? 'page' : null}>${one.title}${one.path === '/' && findings > 0 && html` <span class="badge">${findings}</span>`}<//>`)}</nav>
      <${Connection} /><${Who} />
    </header>
    <main id="main" tabindex="-1" class=${staleness.value ? 'stale' : ''}>${Screen ? html`<${Screen} key=${path} id=${detail ? decodeURIComponent(path.slice(detail.prefix.length)) : undefined} />` : html`<h1>Nothing is here</h1><p>There is no page ${path}. <${Link} href="/">See what happens now<//></p>`}</main>`;
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
