// A local system of its own, from the debug programs.
import { execFile, spawn } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';

const sagactl = join(process.env.SAGA_PROGRAMS ?? '', 'sagactl');
const run = promisify(execFile);

/** Waits until `condition` returns something true, and returns it. @template T @param {string} what @param {() => Promise<T> | T} condition @param {number} [limit] seconds */
export async function waitUntil(what, condition, limit = 30) {
  const until = Date.now() + 1000 * limit;
  for (;;) {
    const found = await condition();
    if (found) return found;
    if (Date.now() > until) throw new Error(`waited ${limit} s in vain until ${what}`);
    await new Promise((resume) => setTimeout(resume, 50));
  }
}

/** @param {number} port */
const isFree = (port) => new Promise((answer) => {
  const server = createServer().once('error', () => answer(false)).once('listening', () => server.close(() => answer(true))).listen(port, '127.0.0.1');
});

/** First of seven free ports. */
async function freePorts() {
  for (let base = 21_000 + 10 * (process.pid % 500); base < 32_000; base += 10) {
    const free = await Promise.all([0, 1, 2, 3, 4, 5, 6].map((offset) => isFree(base + offset)));
    if (free.every(Boolean)) return base;
  }
  throw new Error('no free ports');
}

export class System {
  /** @param {string} folder @param {number} port */
  constructor(folder, port) {
    this.folder = folder;
    this.url = `http://localhost:${port}`;
    this.orders = `http://localhost:${port + 1}/api/orders`;
    /** @type {import('node:child_process').ChildProcess[]} */
    this.loads = [];
    const own = Object.entries(process.env).filter(([name]) => !name.startsWith('SAGA_'));
    this.environment = { ...Object.fromEntries(own), SAGA_DATA: folder, SAGA_OPERATOR: 'ada', NO_COLOR: '1' };
  }

  /** Starts a system. @param {...string} options of sagactl up */
  static async start(...options) {
    const system = new System(await mkdtemp(join(tmpdir(), 'saga-console-')), await freePorts());
    await system.sagactl('up', '--detach', '--port-base', new URL(system.url).port, ...options);
    return system;
  }

  /** Output of sagactl. @param {...string} words */
  async sagactl(...words) {
    const { stdout } = await run(sagactl, words, { env: this.environment, maxBuffer: 64 << 20 });
    return stdout;
  }

  /** Places orders until the system stops, or for a time. @param {number} rate per second @param {string} [duration] @param {...string} options of sagactl load */
  load(rate, duration = '10m', ...options) {
    const words = ['load', '--rate', String(rate), '--duration', duration, '--may-shed', '--drain', '1s', ...options];
    const load = spawn(sagactl, words, { env: this.environment, stdio: 'ignore' });
    this.loads.push(load);
    return new Promise((ended) => load.once('exit', ended));
  }

  stopLoads() {
    for (const load of this.loads.splice(0)) load.kill('SIGKILL');
  }

  /** JSON of admin's API. @param {string} path @param {RequestInit} [options] */
  async admin(path, options) {
    const response = await fetch(`${this.url}/api/admin/${path}`, options);
    return response.json();
  }

  /** Places an order and returns its id. @param {{ customer?: string, token?: string, sku?: string, wait?: number }} [order] */
  async order({ customer = 'grace', token = 'tok_ok', sku = 'ceramic-mug', wait = 10 } = {}) {
    const body = { customer, lines: [{ sku, quantity: 1 }], payment: { token } };
    const response = await fetch(this.orders, { method: 'POST', headers: { 'content-type': 'application/json', prefer: `wait=${wait}` }, body: JSON.stringify(body) });
    const answer = /** @type {any} */ (await response.json());
    if (!response.ok) throw new Error(JSON.stringify(answer));
    return /** @type {string} */ (answer.id);
  }

  /** Waits until an order has one of these statuses, and returns it. @param {string} id @param {...string} statuses */
  ended(id, ...statuses) {
    return waitUntil(`order ${id} is ${statuses.join(' or ')}`, async () => {
      const saga = await this.admin(`sagas/${id}`);
      return statuses.includes(saga.status) ? saga : null;
    });
  }

  async stop() {
    this.stopLoads();
    await this.sagactl('down').catch(() => {});
    await rm(this.folder, { recursive: true, force: true });
  }
}
