// Each screen: accessible, light and dark, on small and large screens, with an address of its own, and safe from what others have written.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { asOperator, inspect, launch, open } from './lib/browser.mjs';
import { System, waitUntil } from './lib/system.mjs';

/** What somebody writes who wants a browser to run it. */
const HOSTILE = '<hostile-tag onclick=alert(1)><img src=x onerror=alert(2)><script>alert(3)</script>';
const NOWHERE = '00000000-0000-7000-8000-000000000000';

/** @type {System} */
let system;
/** @type {import('playwright-core').Browser} */
let browser;
/** Ids of orders by what became of them, and of what else screens show. @type {Record<string, string>} */
const ids = {};

before(async () => {
  [system, browser] = await Promise.all([System.start('--set', 'order.service.deadline=15m'), launch()]);
  await system.sagactl('faults', 'inject', 'inventory', 'fail_permanently', '--step', 'inventory-stock-reservation', '--next', '2');
  const [redriven, dead] = [await system.order({ customer: HOSTILE, wait: 0 }), await system.order({ customer: HOSTILE, wait: 0 })];
  await Promise.all([redriven, dead].map((id) => system.ended(id, 'DEAD_LETTERED')));
  ids.confirmed = await system.order({ customer: HOSTILE });
  ids.cancelled = await system.order({ token: 'tok_declined' });
  await system.sagactl('faults', 'inject', 'payment', 'pause', '--step', 'payment-processing', '--reason', HOSTILE);
  ids.open = await system.order({ wait: 0 });
  ids.dead = dead;
  const letterOf = async (/** @type {string} */ saga) => (await system.admin(`dlq?saga=${saga}`)).dead_letters[0];
  const letter = await letterOf(dead);
  Object.assign(ids, { letter: letter.id, fingerprint: letter.fingerprint });
  const change = async (/** @type {string} */ path, /** @type {object} */ body) => {
    const headers = { 'content-type': 'application/json', 'x-operator': '<b>eve</b>' };
    const answer = await system.admin(path, { method: 'POST', headers, body: JSON.stringify(body) });
    assert.ok(!answer.type, JSON.stringify(answer));
    return answer;
  };
  await change(`dlq/${letter.id}/notes`, { text: HOSTILE });
  await change(`sagas/${dead}/extend`, { seconds: 1800, reason: HOSTILE });
  ids.redrive = (await change('dlq/redrive', { filter: { saga: redriven }, canary: 1, rate: 10, reason: HOSTILE })).id;
  await waitUntil('the redrive is done', async () => (await system.admin(`dlq/redrive/${ids.redrive}`)).status === 'DONE');
  await system.ended(ids.cancelled, 'COMPENSATED');
});
after(async () => { await browser?.close(); await system?.stop(); });

/** @typedef {import('playwright-core').Page} Page @typedef {import('playwright-core').Locator} Locator */

/** @param {string} name @returns {(page: Page) => Locator} */
const heading = (name) => (page) => page.getByRole('heading', { name }).first();
const hostile = (/** @type {Page} */ page) => page.locator('main').getByText(HOSTILE).first();

/** Name, address, and what shows that all of it is there. @type {[string, () => string, ...((page: Page) => Locator)[]][]} */
const SCREENS = [
  ['orders', () => '/orders', heading('Orders'), hostile, (page) => page.getByText('5 orders', { exact: true })],
  ['orders-filtered', () => '/orders?status=COMPENSATED&customer=grace', (page) => page.getByText('1 matching order', { exact: true })],
  ['orders-none', () => `/orders?overdue=true&stuck_at=payment-refund&text=${encodeURIComponent(HOSTILE)}`, 
    (page) => page.getByText('No order is overdue'), hostile],
  ['order-confirmed', () => `/orders/${ids.confirmed}`, hostile, (page) => page.getByText('the customer has paid.').first()],
  ['order-cancelled', () => `/orders/${ids.cancelled}`, (page) => page.getByText('The bank declined 12.50 EUR')],
  ['order-dead-lettered', () => `/orders/${ids.dead}`, hostile, (page) => page.locator('.about').getByRole('link', { name: 'inventory-stock-reservation' })],
  ['order-open', () => `/orders/${ids.open}?time=scale`, heading('Still owed')],
  ['dead-letters', () => '/dead-letters', heading('Causes'), (page) => page.getByRole('link', { name: ids.fingerprint }), hostile],
  ['dead-letters-cause', () => `/dead-letters?fingerprint=${ids.fingerprint}`, heading('The chosen cause'), (page) => page.getByText('Next deadline in')],
  ['dead-letters-none', () => `/dead-letters?status=ANY&text=${encodeURIComponent(HOSTILE)}`, (page) => page.getByText('No dead letter matches'), hostile],
  ['dead-letter', () => `/dead-letters/${ids.letter}`, heading('History'), (page) => page.locator('.note').getByText(HOSTILE)],
  ['dead-letter-edit', () => `/dead-letters/${ids.letter}?edit=1`, heading('Edit and replay'), (page) => page.getByLabel('Data as JSON')],
  ['redrive-wizard', () => `/dead-letters?fingerprint=${ids.fingerprint}&wizard=1`, heading('2. What it would do')],
  ['redrive', () => `/redrives/${ids.redrive}`, heading('Redrive done'), hostile],
  ['map', () => '/map', heading('Map'), (page) => page.getByText('pause at payment-processing')],
  ['map-step', () => '/map?step=payment-processing', heading('payment-processing'), heading('Break it')],
  ['map-service', () => '/map?service=payment&view=list', (page) => page.getByRole('complementary').getByRole('heading', { name: 'payment' })],
  ['map-call', () => '/map?call=bank', heading('calls of the bank')],
  ['books', () => '/books?wait=0', heading('Totals'), (page) => page.locator('main').getByRole('button', { name: 'Check now' })],
  ['activity', () => '/activity', heading('What happened'), hostile, (page) => page.getByText('<b>eve</b>').first()],
  ['activity-filtered', () => `/activity?kind=people&target=${ids.dead}`, hostile],
];

test('each screen by its address, light and dark, from 360 px to 4K', async (story) => {
  const { page, problems } = await open(browser, 'about:blank');
  for (const [name, address, ...signs] of SCREENS) {
    await story.test(name, async () => {
      problems.length = 0;
      await page.goto(system.url + address());
      for (const sign of signs) await sign(page).waitFor();
      await inspect(page, name);
      assert.equal(page.url(), system.url + address(), 'the address stays');
      assert.equal(await page.locator('hostile-tag, main img, body script:not([src])').count(), 0, 'texts are no elements');
      assert.deepEqual(problems, []);
    });
  }
  await page.context().close();
});

test('what is unknown is said, with a way on', async () => {
  const { page, problems } = await open(browser, `${system.url}/`);
  for (const [address, says] of [
    [`/orders/${NOWHERE}`, 'Admin knows no such order.'], ['/orders/x', 'x is no order id'], ['/orders/%zz', '%zz is no order id'],
    [`/dead-letters/${NOWHERE}`, `There is no dead letter ${NOWHERE}`], ['/dead-letters/%3Cb%3E', 'There is no dead letter <b>'],
    ['/dead-letters?fingerprint=x', 'No pending dead letter has the cause x.'],
    [`/redrives/${NOWHERE}`, `There is no redrive ${NOWHERE}`], ['/redrives/x', 'There is no redrive x'],
    ['/map?step=x', 'Nothing of this name is on the map.'], [`/activity?target=${NOWHERE}`, 'Nothing matches.'],
  ]) {
    await page.goto(system.url + address);
    await page.getByText(says).first().waitFor();
    assert.ok(await page.getByRole('main').locator('a, button').count() > 0, `${address} leads nowhere`);
    assert.deepEqual(problems, [], address);
  }
  await page.context().close();
});

test('back leads through the views as they were', async () => {
  const { page, problems } = await open(browser, `${system.url}/orders`);
  const status = page.getByLabel('Status');
  await page.getByText('5 orders', { exact: true }).waitFor();
  await status.selectOption('COMPENSATED');
  await page.getByText('1 matching order', { exact: true }).waitFor();
  await page.getByRole('cell', { name: 'grace' }).click();
  await page.getByText('The bank declined 12.50 EUR').waitFor();
  await page.getByRole('navigation', { name: 'Screens' }).getByRole('link', { name: 'Dead letters' }).click();
  await page.getByRole('link', { name: ids.fingerprint }).click();
  await page.getByRole('link', { name: 'Look at the latest' }).click();
  await heading('History')(page).waitFor();
  await page.goBack();
  await heading('The chosen cause')(page).waitFor();
  await page.goBack();
  await heading('Causes')(page).waitFor();
  await page.goBack();
  await page.getByText('The bank declined 12.50 EUR').waitFor();
  await page.goBack();
  await page.getByText('1 matching order', { exact: true }).waitFor();
  assert.equal(await status.inputValue(), 'COMPENSATED');
  await page.goBack();
  await page.getByText('5 orders', { exact: true }).waitFor();
  assert.equal(await status.inputValue(), '');
  await page.goForward();
  await page.getByText('1 matching order', { exact: true }).waitFor();
  assert.deepEqual(problems, []);
  await page.context().close();
});

test('the map: a fault at a step, injected there, is seen everywhere and ended by one click', async () => {
  await system.sagactl('faults', 'clear', 'payment');
  const { page, problems } = await open(browser, 'about:blank');
  await asOperator(page);
  await page.goto(`${system.url}/map`);
  const frame = page.getByRole('banner').getByText(/injected fault/), panel = page.getByRole('complementary');
  await page.getByText('No fault is injected.').waitFor();
  await page.locator('[data-at="step=inventory-sale"]').click();
  await panel.getByLabel('Fault').selectOption('fail_transiently');
  await panel.getByRole('button', { name: 'Inject…' }).click();
  const dialog = page.getByRole('dialog');
  await dialog.getByText('inventory-sale fails for the moment').waitFor();
  await dialog.getByLabel('Reason (optional)').fill(HOSTILE);
  await dialog.getByRole('button', { name: 'Inject the fault' }).click();
  await frame.waitFor();
  await page.getByRole('listitem').filter({ hasText: 'inventory-sale fails for the moment' }).waitFor();
  await inspect(page, 'map-fault');
  assert.equal(page.url(), `${system.url}/map?step=inventory-sale`);
  await page.getByRole('navigation', { name: 'Screens' }).getByRole('link', { name: 'Books' }).click();
  await page.getByRole('button', { name: 'End all faults' }).click();
  await page.getByText('1 fault ended').waitFor();
  await frame.waitFor({ state: 'detached' });
  assert.deepEqual((await system.admin('faults')).faults, []);
  assert.deepEqual(problems, []);
  await page.context().close();
});
