// A night: hundreds of dead letters of three causes, brought back to balanced books by the console alone.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { asOperator, inspect, Keyboard, launch, open } from './lib/browser.mjs';
import { System, waitUntil } from './lib/system.mjs';

/** Faults that leave three causes. */
const FAULTS = [['inventory', 'inventory-stock-reservation', '40'], ['payment', 'payment-processing', '40'], ['order', 'order-confirmation', '60']];

/** @type {System} */
let system;
/** @type {import('playwright-core').Browser} */
let browser;
before(async () => { [system, browser] = await Promise.all([System.start('--set', 'order.service.deadline=15m'), launch()]); });
after(async () => { await browser?.close(); await system?.stop(); });

/** All items of a list of admin. @param {string} path @param {string} member @returns {Promise<any[]>} */
async function all(path, member) {
  const items = [];
  for (let cursor = ''; ;) {
    const page = await system.admin(`${path}${cursor && `&cursor=${encodeURIComponent(cursor)}`}`);
    items.push(...page[member]);
    if (!page.next) return items;
    cursor = page.next;
  }
}

const pending = async () => (await system.admin('dlq?status=PENDING&limit=1')).total;
/** Orders that neither ended nor wait for a dead letter. */
const moving = async () => {
  const totals = await Promise.all(['STARTED', 'IN_PROGRESS'].map(async (status) => (await system.admin(`sagas?status=${status}&limit=1`)).total));
  return totals[0] + totals[1];
};

test('three causes: from Now to balanced books by mouse, without a lost order', async () => {
  for (const [service, step, probability] of FAULTS) {
    await system.sagactl('faults', 'inject', service, 'fail_permanently', '--step', step, '--probability', probability);
  }
  await system.load(50, '15s', '--mix', 'happy=100');
  await waitUntil('each order has ended or is dead-lettered', async () => (await moving()) === 0);
  for (const [service] of FAULTS) await system.sagactl('faults', 'clear', service);
  const letters = await all('dlq?limit=200', 'dead_letters');
  assert.equal(new Set(letters.map((one) => one.fingerprint)).size, 3);
  assert.ok(letters.length > 300, `${letters.length} dead letters`);

  const { page, problems } = await open(browser, 'about:blank');
  await asOperator(page);
  await page.goto(`${system.url}/`);
  const began = Date.now();
  let clicks = 0;
  const click = async (/** @type {import('playwright-core').Locator} */ target) => { await target.click(); clicks += 1; };
  await page.getByRole('heading', { name: /^You are needed: / }).waitFor();
  for (let cause = 1; cause <= 3; cause++) {
    await click(page.getByRole('link', { name: 'Open the cause' }).first());
    await click(page.getByRole('link', { name: 'Redrive…' }));
    await page.getByLabel('Reason', { exact: true }).fill('the cause is mended');
    if (cause === 2) await page.getByLabel('Replays per second').fill('30');
    await click(page.getByRole('button', { name: /^Start: replay \d+ dead letters$/ }));
    await page.getByRole('heading', { name: /^Redrive / }).waitFor();
    if (cause === 2) await reloadedMeanwhile(page);
    await page.getByRole('heading', { name: 'Redrive done' }).waitFor({ timeout: 60_000 });
    await page.getByText(/Canary: \d+ dead letters; it passed\./).waitFor();
    if (cause < 3) await click(page.getByRole('navigation', { name: 'Screens' }).getByRole('link', { name: 'Now' }));
  }
  await click(page.getByRole('button', { name: 'Do orders, stock and money agree now?' }));
  await page.getByRole('status').filter({ hasText: 'balanced' }).waitFor();
  const seconds = Math.round((Date.now() - began) / 1000);
  console.log(`${letters.length} dead letters of three causes: ${clicks} clicks, three reasons, ${seconds} s until balanced`);
  assert.ok(clicks <= 12, `${clicks} clicks`);
  await inspect(page, 'redrive-done');

  assert.equal(await pending(), 0);
  const completed = new Set((await all('sagas?status=COMPLETED&limit=200', 'sagas')).map((saga) => saga.id));
  assert.deepEqual(letters.filter(({ saga }) => !completed.has(saga)), [], 'no order of a dead letter is lost');
  assert.equal((await system.admin('sagas?limit=1')).total, completed.size, 'no order is lost');
  assert.equal((await system.admin('reconciliation?full=true')).verdict, 'BALANCED');
  assert.equal((await system.admin('dlq/redrive')).redrives.length, 3);
  assert.deepEqual(problems, []);
  await page.context().close();
});

/** Reloads the page while a redrive sends. It goes on, and so does its progress. @param {import('playwright-core').Page} page */
async function reloadedMeanwhile(page) {
  const address = page.url(), progress = page.getByRole('progressbar', { name: 'Progress' });
  const ended = async () => Number(await progress.getAttribute('aria-valuenow'));
  await page.getByRole('heading', { name: 'Redrive running' }).waitFor();
  await waitUntil('some are replayed', async () => (await ended()) > 10);
  const before = await ended();
  await page.reload();
  await page.getByRole('heading', { name: 'Redrive running' }).waitFor();
  assert.equal(page.url(), address);
  assert.ok((await ended()) >= before, 'the progress is kept');
  await waitUntil('it goes on', async () => (await ended()) > before);
}

test('one dead letter, by keyboard alone', async () => {
  await system.sagactl('faults', 'inject', 'payment', 'fail_permanently', '--step', 'payment-processing', '--next', '1');
  const id = await system.order({ wait: 0 });
  await system.ended(id, 'DEAD_LETTERED');
  const { page, problems } = await open(browser, 'about:blank');
  await asOperator(page);
  await page.goto(`${system.url}/`);
  const keyboard = new Keyboard(page), began = Date.now();
  await keyboard.enter(page.getByRole('link', { name: 'Open the cause' }));
  await keyboard.enter(page.getByRole('link', { name: 'Look at the latest' }));
  await keyboard.enter(page.getByRole('button', { name: 'Replay…', exact: true }));
  await keyboard.type(page.getByLabel('Reason (optional)'), 'the step is mended');
  await keyboard.press('Enter');
  await page.getByRole('heading', { name: 'Dead letter resolved' }).waitFor();
  console.log(`one dead letter by keyboard: ${keyboard.keys} keys, ${((Date.now() - began) / 1000).toFixed(1)} s`);
  await page.getByText('The replay took effect.').waitFor();
  await system.ended(id, 'COMPLETED');
  assert.deepEqual(problems, []);
  await page.context().close();
});
