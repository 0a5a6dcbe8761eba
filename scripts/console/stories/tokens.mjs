// Signing in: who has no token sees nothing, and the role decides what is offered.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { inspect, launch, open } from './lib/browser.mjs';
import { System } from './lib/system.mjs';

/** @type {System} */
let system;
/** @type {import('playwright-core').Browser} */
let browser;
before(async () => { [system, browser] = await Promise.all([System.start('--tokens'), launch()]); });
after(async () => { await browser?.close(); await system?.stop(); });

/** Issues a token. @param {string} name @param {string} role */
async function issue(name, role) {
  const output = await system.sagactl('token', 'create', name, '--role', role);
  const token = /saga_\S+/.exec(output)?.[0];
  assert.ok(token, output);
  return token;
}

test('a wrong token is rejected, a viewer may look, and learns why it may not act', async () => {
  const { page, problems } = await open(browser, `${system.url}/`);
  await page.getByRole('heading', { name: 'Sign in' }).waitFor();
  await inspect(page, 'sign-in');
  await page.getByLabel('Token').fill('saga_wrong');
  await page.keyboard.press('Enter');
  await page.getByRole('alert').waitFor();
  await page.getByLabel('Token').fill(await issue('vera', 'viewer'));
  await page.keyboard.press('Enter');
  await page.getByRole('heading', { name: 'Nobody is needed.' }).waitFor();
  await page.getByText('vera').waitFor();
  // The token is nowhere but in the storage of this tab.
  assert.equal(await page.evaluate(() => document.cookie + JSON.stringify(localStorage)), '{}');
  await page.reload();
  await page.getByRole('heading', { name: 'Nobody is needed.' }).waitFor();
  await system.sagactl('kill', 'bank');
  const button = page.getByRole('button', { name: 'Extend the deadlines' }).first();
  await system.order({ wait: 0 });
  await button.waitFor();
  assert.equal(await button.getAttribute('aria-disabled'), 'true');
  await button.hover();
  await page.getByText('needs the role operator; you are viewer').first().waitFor();
  await button.click({ force: true });
  assert.equal(await page.getByRole('dialog').count(), 0);
  await system.sagactl('start', 'bank');
  assert.deepEqual(problems, []);
  await page.context().close();
});

test('a revoked token leads back to the sign-in page; a link may carry a token', async () => {
  const token = await issue('otto', 'operator');
  const { page } = await open(browser, `${system.url}/#token=${token}`);
  await page.getByText('otto').waitFor();
  assert.ok(!page.url().includes('saga_'), page.url());
  await system.sagactl('token', 'revoke', 'otto');
  await page.getByRole('heading', { name: 'Sign in' }).waitFor();
  await page.context().close();
});

