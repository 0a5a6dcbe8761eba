// Sequence diagram of an order.
import { clock, countdown, duration } from '../../lib/format.js';
import { html } from '../../lib/html.js';
import { serverNow } from '../../lib/live.js';
import { go } from '../../lib/router.js';
import { lanesOf, withTimes, workOf } from './story.js';

/** @typedef {import('./story.js').Moment} Moment @typedef {import('./story.js').SagaDetail} SagaDetail
 * @typedef {{ lanes: string[], x: (lane: string) => number, y: (key: string) => number, end: number }} Places */

const AXIS = 112, LANE = 146, HEAD = 34, FIRST = 66, EVEN = 42, LEAST = 36;
/** Room for the text of a pause. */
const PAUSE_TEXT = 22;
/** Milliseconds after which times of the clock stand at the moments. */
const RELATIVE = 10_000;
/** Height that the time of a story to scale takes beside its smallest distances. */
const TO_SCALE = 420;
/** Milliseconds from which a pause is written between two moments. */
const PAUSE = 1_000;

/** Distance between two moments. @param {number} ms @param {number} allMs @param {boolean} toScale */
const distance = (ms, allMs, toScale) => (toScale ? LEAST + TO_SCALE * (ms / allMs) : EVEN + (ms >= PAUSE ? PAUSE_TEXT : 0));

/** @param {Moment[]} moments @param {boolean} toScale @param {number | null} now @returns {Places} */
function placed(moments, toScale, now) {
  const lanes = lanesOf(moments), times = moments.map((one) => Date.parse(one.at));
  const last = times.at(-1) ?? 0, allMs = Math.max(1, (now === null ? last : Math.max(last, now)) - (times[0] ?? 0));
  /** @type {Map<string, number>} */
  const ys = new Map();
  let y = FIRST;
  moments.forEach((one, index) => {
    if (index > 0) y += distance(times[index] - times[index - 1], allMs, toScale);
    ys.set(one.key, y);
  });
  const end = now === null ? y + 26 : y + distance(Math.max(0, now - last), allMs, toScale);
  return { lanes, x: (lane) => AXIS + LANE * (lanes.indexOf(lane) + 0.5), y: (key) => ys.get(key) ?? FIRST, end };
}

/** @param {{ moments: Moment[], saga: SagaDetail, toScale: boolean, describedBy: string }} properties */
export function Diagram({ moments, saga, toScale, describedBy }) {
  if (moments.length === 0) return html`<p>Admin has consumed no fact of this order yet.</p>`;
  const now = saga.waits_since ? serverNow.value : null;
  const places = placed(moments, toScale, now);
  const { lanes, x, end } = places;
  const width = AXIS + LANE * lanes.length, height = end + (now === null ? 8 : 64);
  const label = `Sequence diagram with ${moments.length} moments between ${lanes.join(', ')}. The table of facts lists the same.`;
  return html`<div class="scroll diagram" tabindex="0" role="group" aria-label="Sequence diagram, scrolls sideways">
    <svg width=${width} height=${height} viewBox=${`0 0 ${width} ${height}`} role="img" aria-label=${label} aria-describedby=${describedBy}>
    ${lanes.map((lane) => html`<g key=${lane}><line class="lane" x1=${x(lane)} x2=${x(lane)} y1=${HEAD} y2=${height} />
      <text class="head" x=${x(lane)} y="20" text-anchor="middle">${lane}</text></g>`)}
    ${workOf(moments, saga).map((work) => html`<${Bar} key=${`${work.lane} ${work.from} ${work.to}`} work=${work} places=${places} />`)}
    ${moments.map((moment, index) => html`<${When} key=${moment.key} moment=${moment} start=${moments[0]} before=${moments[index - 1]} places=${places} />`)}
    ${moments.map((moment) => html`<${Happening} key=${moment.key} moment=${moment} places=${places} width=${width} />`)}
    ${now !== null && html`<${Waiting} saga=${saga} places=${places} width=${width} now=${now} />`}
  </svg></div>`;
}

/** @param {string} at */
const utc = (at) => `${at.slice(0, 23).replace('T', ' ').replace('Z', '')} UTC`;

/** @param {{ work: import('./story.js').Work, places: Places }} properties */
function Bar({ work, places }) {
  const { lane, from, to, isProblem } = work, top = places.y(from), bottom = to === null ? places.end : places.y(to);
  return html`<rect class=${`work ${to === null ? 'open' : ''} ${isProblem ? 'bad' : ''}`} rx="2" x=${places.x(lane) - 5} width="10" y=${top}
    height=${Math.max(3, bottom - top)} />`;
}

/**
 * Time of a moment at the left, with a longer pause before it.
 * @param {{ moment: Moment, start: Moment, before: Moment | undefined, places: Places }} properties
 */
function When({ moment, start, before, places }) {
  const y = places.y(moment.key), time = Date.parse(moment.at), after = time - Date.parse(start.at);
  const pause = before ? time - Date.parse(before.at) : 0, isSame = before && pause === 0;
  const text = isSame ? '' : before && after < RELATIVE ? `+${duration(after)}` : clock(moment.at, time, true);
  return html`<g>
    ${before && pause >= PAUSE && html`<text class="pause" x=${AXIS - 12} y=${(places.y(before.key) + y) / 2 + 4} text-anchor="end">
      ${duration(pause)} later</text>`}
    <text class="when" x=${AXIS - 12} y=${y + 4} text-anchor="end">${text}<title>${utc(moment.at)}</title></text>
  </g>`;
}

/** @param {{ y: number, width: number, text: string }} properties */
const DeadlineLine = ({ y, width, text }) => html`<line class="deadline" x1=${AXIS} x2=${width} y1=${y} y2=${y} />
  <text class="label deadline" x=${AXIS + 6} y=${y - 5}>${text}</text>`;

/** @param {{ kind: string, start: number, end: number, y: number }} properties */
function Arrow({ kind, start, end, y }) {
  const direction = Math.sign(end - start);
  return html`<path class=${`arrow ${kind}`} d=${`M${start} ${y}H${end}`} />
    <path class=${`tip ${kind}`} d=${`M${end - 5 * direction} ${y}l${-8 * direction} -4v8z`} />`;
}

/** What stands at the service itself. @param {{ kind: string, x: number, y: number, isAlone: boolean }} properties */
const Mark = ({ kind, x, y, isAlone }) => (kind === 'problem' ? html`<path class="cross" d=${`M${x - 6} ${y - 6}l12 12m0 -12l-12 12`} />`
  : html`<circle class=${`dot ${kind}`} cx=${x} cy=${y} r=${isAlone ? 4.5 : 3} />`);

/** Something that happened: an arrow to who received it, or a mark at one place. @param {{ moment: Moment, places: Places, width: number }} properties */
function Happening({ moment, places, width }) {
  const { kind, name, note, from, to, seenBy = [], deadLetter } = moment;
  const y = places.y(moment.key), start = places.x(from);
  const title = html`<title>${[`${from}${to.length > 0 ? ` → ${to.join(', ')}` : ''}: ${name}`, note, utc(moment.at)].filter(Boolean).join('\n')}</title>`;
  const open = deadLetter ? () => go(`/dead-letters/${deadLetter}`) : undefined;
  if (kind === 'deadline') {
    return html`<g>${title}<${DeadlineLine} y=${y} width=${width} text=${name} /></g>`;
  }
  const receivers = to.filter((lane) => places.lanes.includes(lane)), ends = receivers.map(places.x);
  const seen = seenBy.filter((lane) => lane !== from).map(places.x);
  return html`<g class=${open ? 'link' : null} onClick=${open}>${title}
    ${ends.map((end) => html`<${Arrow} key=${end} kind=${kind} start=${start} end=${end} y=${y} />`)}
    ${seen.map((end) => html`<${Arrow} key=${end} kind="seen" start=${start} end=${end} y=${y} />`)}
    <${Mark} kind=${kind} x=${start} y=${y} isAlone=${ends.length === 0} />
    <${Label} moment=${moment} y=${y} start=${start} end=${nearest(ends, start)} width=${width} />
  </g>`;
}

/** @param {number[]} ends @param {number} start */
const nearest = (ends, start) => (ends.length === 0 ? null : ends.reduce((best, end) => (Math.abs(end - start) < Math.abs(best - start) ? end : best)));

/** Width of a character of a note. */
const CHARACTER = 6.3;

/** @param {string} text @param {number} most */
const shortened = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

/** The bank's id of a charge, which is too long for the diagram. */
const BANK_REFERENCE = /, bank \S+$/;

/** @param {{ moment: Moment, y: number, start: number, end: number | null, width: number }} properties */
function Label({ moment, y, start, end, width }) {
  const { kind, name } = moment, note = withTimes(moment.note.replace(BANK_REFERENCE, ''), (at) => clock(at, Date.parse(moment.at)));
  if (end !== null) {
    const middle = (start + end) / 2, most = Math.max(24, Math.round(Math.abs(end - start) / CHARACTER));
    return html`<text class=${`label ${kind}`} x=${middle} y=${y - 5} text-anchor="middle">${name}</text>
      ${note && html`<text class="note" x=${middle} y=${y + 12} text-anchor="middle">${shortened(note, most)}</text>`}`;
  }
  const isAtEdge = start + LANE > width, x = start + (isAtEdge ? -12 : 12), anchor = isAtEdge ? 'end' : 'start';
  const most = Math.round((isAtEdge ? x : width - x) / CHARACTER);
  return html`<text class=${`label ${kind}`} x=${x} y=${y + (note ? -2 : 4)} text-anchor=${anchor}>${name}</text>
    ${note && html`<text class="note" x=${x} y=${y + 11} text-anchor=${anchor}>${shortened(note, most)}</text>`}`;
}

/** What the order waits for now. @param {{ saga: SagaDetail, places: Places, width: number, now: number }} properties */
function Waiting({ saga, places, width, now }) {
  const { end, x, lanes } = places, until = saga.waits_until ? Date.parse(saga.waits_until) : null;
  const owed = saga.remaining.filter((one) => lanes.includes(one.owner)).slice(0, saga.cancelled_because ? undefined : 1);
  return html`<g>
    <line class="now" x1=${AXIS} x2=${width} y1=${end} y2=${end} /><text class="when now" x=${AXIS - 12} y=${end + 4} text-anchor="end">now</text>
    ${owed.map((one) => html`<text key=${one.step} class="label owed" x=${x(one.owner)} y=${end + 17} text-anchor="middle">waits for ${one.fact}</text>`)}
    ${until !== null && html`<${DeadlineLine} y=${end + 44} width=${width}
      text=${until > now ? `deadline at ${clock(until, now)}, in ${countdown(until - now)} (not to scale)` : `deadline passed at ${clock(until, now)}`} />`}
  </g>`;
}
