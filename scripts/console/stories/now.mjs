// Now: what the first screen says while things break and are mended.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { inspect, launch, open } from './lib/browser.mjs';
import { System, waitUntil } from './lib/system.mjs';

/** @type {System} */
let system;
/** @type {import('playwright-core').Browser} */
let browser;
before(async () => { [system, browser] = await Promise.all([System.start('--set', 'order.service.deadline=120s'), launch()]); });
after(async () => { await browser?.close(); await system?.stop(); });

test('first sight: within a second, with less than 150 KB, and nothing wrong', async () => {
  const { page, problems } = await open(browser, 'about:blank');
  let bytes = 0;
  const session = await page.context().newCDPSession(page);
  await session.send('Network.enable');
  session.on('Network.loadingFinished', (finished) => { bytes += finished.encodedDataLength; });
  await page.goto(`${system.url}/`);
  await page.getByRole('heading', { name: 'Nobody is needed.' }).waitFor();
  const shown = await page.evaluate(() => performance.now());
  console.log(`first sight after ${Math.round(shown)} ms, ${Math.round(bytes / 1024)} KB`);
  assert.ok(bytes < 150 * 1024, `${bytes} bytes`);
  await inspect(page, 'now-quiet');
  assert.deepEqual(problems, []);
  await page.context().close();
});

test('the bank dies under load: who waits, until when; extended by keyboard, and calm again', async () => {
  system.load(10);
  const { page, problems } = await open(browser, `${system.url}/`);
  await page.getByText('Placed per second').waitFor();
  await system.sagactl('kill', 'bank');
  await page.getByRole('heading', { name: /You are needed: bank does not answer/ }).waitFor();
  const finding = page.getByRole('listitem').filter({ has: page.getByRole('heading', { name: /bank does not answer/ }) });
  await finding.getByText('Orders that wait').waitFor();
  await finding.getByText('Next cancellation in').waitFor();
  assert.match(await page.title(), /^\(\d+\) Now/);
  await inspect(page, 'now-bank-away');
  // By keyboard alone.
  const extend = finding.getByRole('button', { name: 'Extend the deadlines' });
  await extend.focus();
  await page.keyboard.press('Enter');
  const dialog = page.getByRole('dialog');
  await dialog.getByLabel('Minutes from now').fill('20');
  await dialog.getByLabel('Reason').fill('the bank is away');
  await page.keyboard.press('Enter');
  await page.getByText(/Asked to extend \d+ orders?/).waitFor();
  const log = await system.admin('audit?action=saga.extend');
  assert.equal(log.entries[0].reason, 'the bank is away');
  await system.sagactl('start', 'bank');
  await page.getByRole('heading', { name: 'Nobody is needed.' }).waitFor({ timeout: 60_000 });
  system.stopLoads();
  assert.deepEqual(problems, []);
  await page.context().close();
});

test('admin dies: the page says that it is out of date, and goes on by itself', async () => {
  const { page, problems } = await open(browser, `${system.url}/`);
  await page.getByText('live', { exact: true }).waitFor();
  await system.sagactl('kill', 'admin');
  await page.getByRole('alert').filter({ hasText: 'admin does not answer' }).waitFor();
  await page.getByText(/what you see is .* old/).waitFor();
  await system.sagactl('start', 'admin');
  await page.getByText('live', { exact: true }).waitFor();
  await waitUntil('the overview is read again', async () => (await page.getByRole('alert').count()) === 0);
  assert.deepEqual(problems, []);
  await page.context().close();
});
