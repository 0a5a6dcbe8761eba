// The schedule that runs in this page, on whichever screen. It stops with the page.
import { post } from '../../lib/api.js';
import { messageOf } from '../../lib/format.js';
import { signal } from '../../lib/html.js';
import { plan } from './schedule.js';
import { endFault } from './end.js';

/**
 * @typedef {import('./schedule.js').PlannedFault} PlannedFault
 * @typedef {'planned' | 'active' | 'ended' | 'skipped' | 'failed'} Progress
 * @typedef {PlannedFault & { progress: Progress, problem?: string, id?: number }} ScheduledFault
 * @typedef {import('./schedule.js').Settings & { seed: number, startedAt: number, isRunning: boolean, faults: ScheduledFault[] }} Schedule
 */

/** Newest schedule; null before the first. @type {import('../../vendor/signals.js').Signal<Schedule | null>} */
export const schedule = signal(null);
/** @type {ReturnType<typeof setInterval> | undefined} */
let ticking;

/** @param {number} index @param {Partial<ScheduledFault>} change */
function note(index, change) {
  if (schedule.value) schedule.value = { ...schedule.value, faults: schedule.value.faults.map((one, at) => (at === index ? { ...one, ...change } : one)) };
}

/** Warns before the page is closed. @param {BeforeUnloadEvent} event */
const warn = (event) => event.preventDefault();

/** @param {Schedule} of @param {number} index */
async function inject(of, index) {
  const { at, seconds, service, kind, step, probability, next, delay_ms } = of.faults[index];
  note(index, { progress: 'active' });
  const isMine = () => schedule.value?.startedAt === of.startedAt;
  try {
    const fault = { service, kind, step, probability, next, for_seconds: seconds, delay_ms, seed: of.seed + index, reason: `schedule with seed ${of.seed}, ${at} s after its start` };
    const { id } = await post('/api/admin/faults', fault);
    if (isMine()) note(index, { id });
    if (!isMine() || !schedule.value?.isRunning) await endFault({ service, id });
  } catch (problem) {
    if (isMine()) note(index, { progress: 'failed', problem: messageOf(problem) });
  }
}

function tick() {
  const current = schedule.value;
  if (!current) return;
  const elapsed = (Date.now() - current.startedAt) / 1000;
  current.faults.forEach((one, index) => {
    if (one.progress === 'active' && one.id !== undefined && elapsed > one.at + one.seconds) note(index, { progress: 'ended' });
    if (one.progress !== 'planned' || one.at > elapsed) return;
    // A hidden or sleeping tab was too late for it.
    if (elapsed > one.at + one.seconds) note(index, { progress: 'skipped' });
    else inject(current, index);
  });
  if (elapsed >= 60 * current.minutes && !(schedule.value?.faults ?? []).some((one) => one.progress === 'active')) finish();
}

function finish() {
  clearInterval(ticking);
  removeEventListener('beforeunload', warn);
  if (schedule.value) schedule.value = { ...schedule.value, isRunning: false };
}

/** @param {number} seed @param {import('./schedule.js').Settings} settings */
export function startSchedule(seed, settings) {
  finish();
  schedule.value = { ...settings, seed, startedAt: Date.now(), isRunning: true, faults: plan(seed, settings).map((one) => ({ ...one, progress: 'planned' })) };
  addEventListener('beforeunload', warn);
  ticking = setInterval(tick, 500);
  tick();
}

/** Stops the schedule, and ends its fault that is active unless something else does. @param {{ endsFault?: boolean }} [options] */
export async function stopSchedule({ endsFault = true } = {}) {
  const active = (schedule.value?.faults ?? []).filter((one) => one.progress === 'active');
  finish();
  if (endsFault) await Promise.all(active.map(({ service, id }) => (id === undefined ? null : endFault({ service, id }))));
  schedule.value?.faults.forEach((one, index) => { if (one.progress === 'active') note(index, { progress: 'ended' }); });
}
