// Proof: a customer who was charged for an order that was cancelled asks where the money is.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { inspect, launch, open } from './lib/browser.mjs';
import { System } from './lib/system.mjs';

const CUSTOMER = 'Rosalind Franklin', OTHER = 'Max Perutz';

/** @type {System} */
let system;
/** @type {import('playwright-core').Browser} */
let browser;
before(async () => { [system, browser] = await Promise.all([System.start('--set', 'order.service.deadline=5s'), launch()]); });
after(async () => { await browser?.close(); await system?.stop(); });

test('charged and cancelled: from the name to the proof that the money is back', async () => {
  await system.order({ customer: OTHER });
  // The bank charges, but no answer arrives until the order has timed out.
  await system.sagactl('faults', 'inject', 'bank', 'bank_lose_answer');
  const id = await system.order({ customer: CUSTOMER, wait: 0 });
  await system.ended(id, 'COMPENSATING', 'COMPENSATED');
  await system.sagactl('faults', 'clear', 'bank');
  await system.ended(id, 'COMPENSATED');

  const { page, problems } = await open(browser, `${system.url}/`, { permissions: ['clipboard-read', 'clipboard-write'] });
  let clicks = 0;
  const click = async (/** @type {import('playwright-core').Locator} */ target) => { await target.click(); clicks += 1; };
  const began = Date.now();
  await click(page.getByRole('navigation', { name: 'Screens' }).getByRole('link', { name: 'Orders' }));
  await page.getByRole('searchbox', { name: 'Order id, or part of the customer' }).fill('rosalind');
  await page.getByText('1 matching order', { exact: true }).waitFor();
  assert.equal(await page.getByText(OTHER).count(), 0);
  await click(page.getByRole('cell', { name: CUSTOMER }));
  const verdict = page.getByText('Charged 12.50 EUR and refunded: the customer has the money back.');
  await verdict.waitFor();
  await click(page.getByRole('button', { name: 'Copy proof' }));
  console.log(`from the name to the proof: ${clicks} clicks, ${((Date.now() - began) / 1000).toFixed(1)} s`);
  assert.ok(clicks <= 3, `${clicks} clicks`);

  await page.getByRole('button', { name: 'Copied' }).waitFor();
  const proof = await page.evaluate(() => navigator.clipboard.readText());
  for (const part of [
    `Order ${id}`, `Customer: ${CUSTOMER}`, 'Ordered total: 12.50 EUR', 'Status: COMPENSATED, cancelled because: timed out',
    'Charged 12.50 EUR and refunded: the customer has the money back.', 'Payment: VOID', 'Bank: REFUNDED, 12.50 EUR', 'They agree: yes', 'Deadline: ',
  ]) assert.ok(proof.includes(part), `the proof lacks "${part}":\n${proof}`);
  assert.match(proof, /^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} UTC {2}order > inventory, payment: OrderCancelled \(timed out\)$/m);
  assert.match(proof, /^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} UTC {2}payment: PaymentVoided$/m);
  // As admin's API has it.
  const payment = await system.admin(`payments/${id}`);
  assert.equal(payment.charge.status, 'REFUNDED');
  assert.ok(proof.includes(payment.charge.id));
  await inspect(page, 'order-refunded');
  assert.deepEqual(problems, []);
  await page.context().close();
});

test('the link of an order, with its view, shows the same to a colleague and after a reload', async () => {
  const { sagas } = await system.admin(`sagas?customer=${encodeURIComponent(CUSTOMER)}`);
  const { page, problems } = await open(browser, `${system.url}/orders/${sagas[0].id}?time=scale`);
  const pressed = page.getByRole('button', { name: 'Time to scale', pressed: true });
  const seen = async () => {
    await pressed.waitFor();
    await page.getByText('the customer has the money back').waitFor();
    return { address: page.url(), text: await page.getByRole('table').first().innerText(), drawing: await page.locator('main svg').first().innerHTML() };
  };
  const first = await seen();
  await page.reload();
  assert.deepEqual(await seen(), first);
  await page.getByRole('button', { name: 'Even' }).click();
  assert.equal(new URL(page.url()).search, '');
  assert.deepEqual(problems, []);
  await page.context().close();
});
