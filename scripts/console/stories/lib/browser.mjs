// Pages of the console in Chromium. A story fails if a page logs an error or needs to scroll sideways.
import assert from 'node:assert/strict';
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { AxeBuilder } from '@axe-core/playwright';
import { chromium } from 'playwright-core';

const FLAGS = ['--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage', '--disable-background-networking', '--disable-component-update', '--disable-sync', '--no-first-run'];

export const launch = () => chromium.launch({ executablePath: process.env.CHROMIUM, args: FLAGS });

/**
 * Opens the console. The page's `problems` are what it logged; a request that fails because admin is away is no problem.
 * @param {import('playwright-core').Browser} browser @param {string} address
 * @param {import('playwright-core').BrowserContextOptions} [options]
 */
export async function open(browser, address, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1400, height: 900 }, ...options });
  context.setDefaultTimeout(20_000);
  const page = await context.newPage();
  /** @type {string[]} */
  const problems = [];
  page.on('pageerror', (error) => problems.push(error.message));
  page.on('console', (message) => {
    if (message.type() === 'error' && !/Failed to load resource|net::ERR/.test(message.text())) problems.push(message.text());
  });
  page.on('dialog', (dialog) => { problems.push(`a dialog: ${dialog.message()}`); dialog.dismiss(); });
  await page.goto(address);
  return { page, problems };
}

/** Says who the operator is, so that forms do not ask. @param {import('playwright-core').Page} page */
export const asOperator = (page) => page.addInitScript(() => localStorage.setItem('saga-operator', 'ada'));

/** Operates a page by keyboard alone. */
export class Keyboard {
  /** @param {import('playwright-core').Page} page */
  constructor(page) {
    this.page = page;
    this.keys = 0;
  }

  /** @param {string} key */
  async press(key) {
    this.keys += 1;
    await this.page.keyboard.press(key);
  }

  /** Moves the focus with Tab until it is on an element, which has to show it. @param {import('playwright-core').Locator} target */
  async focus(target) {
    await target.waitFor();
    for (let tabs = 0; !(await target.evaluate((element) => element === document.activeElement)); tabs++) {
      assert.ok(tabs < 100, `Tab does not reach ${target}`);
      await this.press('Tab');
    }
    assert.notEqual(await target.evaluate((element) => getComputedStyle(element).outlineStyle), 'none', `the focus does not show on ${target}`);
  }

  /** @param {import('playwright-core').Locator} target */
  async enter(target) {
    await this.focus(target);
    await this.press('Enter');
  }

  /** @param {import('playwright-core').Locator} target @param {string} text */
  async type(target, text) {
    await this.focus(target);
    this.keys += text.length;
    await this.page.keyboard.type(text);
  }
}

/** Checks a page for accessibility, in light and dark, and for sideways scrolling from 360 px on. @param {import('playwright-core').Page} page @param {string} name */
export async function inspect(page, name) {
  for (const scheme of /** @type {const} */ (['light', 'dark'])) {
    // Colours are judged at once, not on their way to others.
    await page.emulateMedia({ colorScheme: scheme, reducedMotion: 'reduce' });
    const axe = new AxeBuilder({ page });
    // Nothing but colours is different in the dark.
    const { violations } = await (scheme === 'dark' ? axe.withRules('color-contrast') : axe.withTags(['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa'])).analyze();
    const found = violations.map((one) => `${one.id}: ${one.help}: ${one.nodes.slice(0, 3).map((node) => `${node.html} ${node.failureSummary}`).join(' | ')}`);
    assert.deepEqual(found, [], `${name}, ${scheme}`);
    if (process.env.PICTURES) {
      mkdirSync(process.env.PICTURES, { recursive: true });
      await page.screenshot({ path: join(process.env.PICTURES, `${name}-${scheme}.png`) });
    }
  }
  await page.emulateMedia({ colorScheme: 'light', reducedMotion: null });
  const size = page.viewportSize();
  for (const width of [360, 3840]) {
    await page.setViewportSize({ width, height: 900 });
    const { overflow, beyond } = await page.evaluate(() => {
      const { scrollWidth, clientWidth } = document.documentElement;
      const wide = [...document.querySelectorAll('main *')].filter((one) => one.getBoundingClientRect().right > clientWidth && !one.closest('.scroll'));
      return { overflow: scrollWidth - clientWidth, beyond: wide.slice(-3).map((one) => one.outerHTML.slice(0, 200)) };
    });
    assert.ok(overflow <= 0, `${name} is ${overflow} px too wide for a screen of ${width} px: ${beyond.join(' | ')}`);
  }
  if (size) await page.setViewportSize(size);
}
