// Pure: the sequence of faults of a schedule. The same seed and settings give the same sequence.
import { kindsAt } from './kinds.js';
import { stepsOf } from './topology.js';

/**
 * @typedef {{ every: number, minutes: number, withCrashes?: boolean }} Settings every: seconds between two faults
 * @typedef {{ at: number, seconds: number, service: string, kind: string, step?: string, probability: number, next?: number, delay_ms?: number }} PlannedFault
 *   at: seconds after the start; seconds: how long it is active, always less than the interval
 */

/** Limits of a schedule: at least ten seconds, so that a fault of some seconds and a pause fit in. */
export const LIMITS = { every: [10, 600], minutes: [1, 120], seed: [0, 4_294_967_295] };

/** Services that a schedule strikes. Admin has to remain able to end the faults. */
const TARGETS = ['order', 'inventory', 'payment', 'bank'];

/** Generator mulberry32: numbers from 0 to 1 exclusive. @param {number} seed */
function generator(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = state;
    mixed = Math.imul(mixed ^ (mixed >>> 15), mixed | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296;
  };
}

/**
 * Faults of a schedule, in the order of time.
 * @param {number} seed @param {Settings} settings @returns {PlannedFault[]}
 */
export function plan(seed, { every, minutes, withCrashes = false }) {
  const random = generator(seed);
  /** @template T @param {T[]} choices @returns {T} */
  const oneOf = (choices) => choices[Math.floor(random() * choices.length)];
  const count = Math.floor((minutes * 60) / every);
  return Array.from({ length: count }, (_, index) => {
    const service = oneOf(TARGETS);
    const kind = oneOf(kindsAt(service).filter((one) => withCrashes || !one.endsProcess));
    // Steps that operators feed have nothing to do unless someone operates.
    const steps = stepsOf(service).filter((one) => !one.from.includes('admin'));
    const seconds = Math.max(3, Math.floor(every * (0.3 + 0.4 * random())));
    return {
      at: index * every, seconds, service, kind: kind.kind, probability: kind.endsProcess || kind.kind === 'pause' ? 100 : oneOf([30, 60, 100]),
      ...(kind.takesStep && { step: oneOf(steps).step }),
      ...(kind.needsDelay && { delay_ms: oneOf([500, 1000, 3000]) }),
      ...(kind.endsProcess && { next: 1 }),
    };
  });
}
