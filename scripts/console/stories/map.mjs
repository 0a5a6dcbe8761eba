// What the console knows by heart of services, steps and faults is what the system has.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { KINDS } from '../console/screens/map/kinds.js';
import { plan } from '../console/screens/map/schedule.js';
import { SERVICES, STEPS, stepsOf } from '../console/screens/map/topology.js';
import { System, waitUntil } from './lib/system.mjs';

/** @type {System} */
let system;
before(async () => { system = await System.start(); });
after(async () => { await system?.stop(); });

test('each kind of fault has words, and the fields that it needs', async () => {
  const { items } = JSON.parse(await system.sagactl('faults', 'kinds', '--json'));
  const known = items.map((/** @type {any} */ { kind, where, effect }) => (
    { kind, ofBank: where === 'the bank', takesStep: effect.includes('--step'), needsDelay: effect.includes('--delay') }));
  const words = KINDS.map(({ kind, ofBank = false, takesStep = false, needsDelay = false }) => ({ kind, ofBank, takesStep, needsDelay }));
  const byKind = (/** @type {{ kind: string }} */ one, /** @type {{ kind: string }} */ other) => one.kind.localeCompare(other.kind);
  assert.deepEqual(words.sort(byKind), known.sort(byKind));
  assert.ok(KINDS.every(({ name, effect }) => name && effect));
});

test('each service and step is on the map, between those that publish and consume', async () => {
  const overview = await system.admin('overview');
  const names = (/** @type {any[]} */ list, /** @type {string} */ member) => list.map((one) => one[member]).sort();
  assert.deepEqual(names(SERVICES, 'name'), names(overview.services, 'service'));
  for (const { service, steps = [] } of overview.services) assert.deepEqual(names(stepsOf(service), 'step'), names(steps, 'step'), service);
  const services = await waitUntil('the services tell their subjects', async () => {
    const all = await system.admin('services');
    return ['order', 'inventory', 'payment'].every((name) => all.find((/** @type {any} */ one) => one.service === name)?.service_stats) ? all : null;
  });
  // The first part of a subject is the service that publishes.
  const subjects = Object.fromEntries(services.flatMap((/** @type {any} */ one) => (one.service_stats?.steps ?? [])
    .map((/** @type {any} */ step) => [step.step, [...new Set(step.subjects.map((/** @type {string} */ subject) => subject.split('.')[0]))].sort()])));
  for (const { step, owner, from } of STEPS.filter((one) => one.owner !== 'admin')) assert.deepEqual(subjects[step], from.toSorted(), `${step} of ${owner}`);
});

test('a schedule repeats with its seed', () => {
  const settings = { every: 10, minutes: 20 };
  const first = plan(42, settings);
  assert.deepEqual(plan(42, settings), first);
  assert.notDeepEqual(plan(43, settings), first);
  assert.equal(first.length, 120);
  const kinds = new Map(KINDS.map((one) => [one.kind, one]));
  for (const { at, seconds, service, kind, step } of first) {
    assert.ok(at % 10 === 0 && seconds < 10, 'one at a time');
    assert.ok(service !== 'admin' && !kinds.get(kind)?.endsProcess, `${kind} at ${service}`);
    assert.equal(step === undefined, !kinds.get(kind)?.takesStep);
    assert.ok(!step || stepsOf(service).some((one) => one.step === step), `${step} of ${service}`);
  }
  assert.ok(plan(42, { ...settings, withCrashes: true }).some(({ kind }) => kinds.get(kind)?.endsProcess));
});
