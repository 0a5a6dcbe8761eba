// The drawing of the map: orders flow along the first row and back below, operators' commands and reports along the bottom.
import { html } from '../../lib/html.js';
import { arrowText, MapLink, noteText, serviceLines } from './figures.js';
import { arrowState, callState, serviceState } from './state.js';
import { BANK_CALL, SERVICES, stepNamed, stepsOf } from './topology.js';

/** @typedef {import('./state.js').ArrowState} ArrowState @typedef {import('./state.js').Overview} Overview */
/** @typedef {import('./state.js').Note} Note @typedef {import('./figures.js').Selection} Selection */

const ROW = 56, FIRST = 32, INVENTORY_BOTTOM = 296, FLOW_BOTTOM = 534, ADMIN_TOP = 630;
const WIDTH = 1270, HEIGHT = 724;

/** Boxes of the services: x, y, width, height. @type {Record<string, [number, number, number, number]>} */
const BOXES = {
  order: [1, 1, 140, FLOW_BOTTOM], inventory: [405, 1, 140, INVENTORY_BOTTOM], payment: [809, 1, 140, FLOW_BOTTOM], bank: [1119, 1, 150, 172],
  admin: [1, ADMIN_TOP, WIDTH - 2, HEIGHT - ADMIN_TOP - 1],
};

/** Horizontal arrows: step, producer, row. @type {[string, string, number][]} */
const ROWS = [
  ['inventory-stock-reservation', 'order', 0], ['inventory-stock-release', 'order', 1], ['inventory-sale', 'order', 2],
  ['order-cancellation', 'inventory', 3], ['order-catalogue', 'inventory', 4], ['payment-processing', 'inventory', 0],
  ['order-confirmation', 'payment', 5], ['order-cancellation', 'payment', 6], ['payment-refund', 'order', 7], ['payment-extension', 'order', 8],
];

/** Y of a row's line. The rows that pass below inventory keep a distance from it. @param {number} row */
const lineY = (row) => FIRST + row * ROW + (row > 4 ? 16 : 0);

/** @param {number} x @param {number} y @param {'left' | 'right' | 'up' | 'down'} to */
function tip(x, y, to) {
  const turned = { right: 0, down: 90, left: 180, up: 270 }[to];
  return html`<path class="tip" d="M0 0 -9 -4.5 -9 4.5Z" transform=${`translate(${x} ${y}) rotate(${turned})`} />`;
}

/** More waits, wider the line. @param {number | null} waiting */
const widthFor = (waiting) => 1.5 + Math.min(4, Math.log10(1 + (waiting ?? 0)) * 1.3);

/** Notes that fit at an arrow. */
const MOST_NOTES = 2;

/** The notes that fit, and how many do not. @param {Note[]} notes @param {number} [most] */
function notesText(notes, most = MOST_NOTES) {
  const shown = notes.slice(0, most).map(noteText).join(' · ');
  return notes.length > most ? `${shown} +${notes.length - most}` : shown;
}

/**
 * Accessible name of an arrow: what is drawn, and then the rest.
 * @param {string} from @param {string} to @param {string} name @param {ArrowState} arrow @param {number} [most]
 */
function spoken(from, to, name, arrow, most = MOST_NOTES) {
  const drawn = [arrowText(arrow), notesText(arrow.notes, most)].filter(Boolean).join(', ');
  return [`${name}: ${drawn}`, ...arrow.notes.slice(most).map(noteText), `from ${from} to ${to}`].join(', ');
}

/**
 * Name, figures and notes of an arrow.
 * @param {{ x: number, y: number, name: string, arrow: ArrowState, gap?: number, most?: number }} properties gap: from the name down to the figures
 */
const Label = ({ x, y, name, arrow, gap = 22, most }) => html`<text class="name" x=${x} y=${y - 7}>${name}</text>${' '}
  <text class="figures" x=${x} y=${y - 7 + gap}>${arrowText(arrow)}</text>${' '}
  ${arrow.notes.length > 0 && html`<text class="notes" x=${x} y=${y - 7 + gap + 14}>${notesText(arrow.notes, most)}</text>`}`;

/**
 * Horizontal arrow between two boxes.
 * @param {{ from: string, to: string, row: number, name: string, arrow: ArrowState, selects: Selection, most?: number }} properties
 */
function RowArrow({ from, to, row, name, arrow, selects, most }) {
  const y = lineY(row), isRight = BOXES[from][0] < BOXES[to][0];
  const [left, right] = isRight ? [from, to] : [to, from];
  const begin = BOXES[left][0] + BOXES[left][2] + 4, end = BOXES[right][0] - 4;
  return html`<${MapLink} to=${selects} class=${`arrow ${arrow.tone}`} label=${spoken(from, to, name, arrow, most)}>
    <rect class="hit" x=${begin} y=${y - 21} width=${end - begin} height=${ROW - 2} rx="5" />
    <line class="line" x1=${begin + (isRight ? 0 : 8)} x2=${end - (isRight ? 8 : 0)} y1=${y} y2=${y} stroke-width=${widthFor(arrow.waiting)} />
    ${isRight ? tip(end, y, 'right') : tip(begin, y, 'left')}
    <${Label} x=${begin + 12} y=${y} name=${name} arrow=${arrow} most=${most} />
  <//>`;
}

/** Bottom of a service's box, where the lines to and from admin end. @param {string} service */
const bottomOf = (service) => BOXES[service][1] + BOXES[service][3];

/** Commands of operators, from admin up to a service. @param {{ overview: Overview, service: string }} properties */
function Commands({ overview, service }) {
  const [x, , width] = BOXES[service];
  const steps = stepsOf(service).filter((one) => one.from.includes('admin'));
  return html`${steps.map((step, index) => {
    const at = x + width - 20 - index * 14, y = FLOW_BOTTOM + 24 + index * 44, arrow = arrowState(overview, step);
    return html`<${MapLink} key=${step.step} to=${{ kind: 'step', name: step.step }} class=${`arrow ${arrow.tone}`}
      label=${spoken('admin', service, step.step, arrow)}>
      <rect class="hit" x=${at - 5} y=${y - 20} width=${x + width + 225 - at} height="42" rx="5" />
      <line class="line" x1=${at} x2=${at} y1=${ADMIN_TOP - 3} y2=${bottomOf(service) + 10} stroke-width=${widthFor(arrow.waiting)} />
      ${tip(at, bottomOf(service) + 3, 'up')}
      <${Label} x=${x + width - 8} y=${y} name=${step.step} arrow=${arrow} gap=${14} />
    <//>`;
  })}`;
}

/** Facts of a service, down to admin. @param {{ service: string }} properties */
function Facts({ service }) {
  const x = BOXES[service][0] + 24;
  return html`<g class="facts-line"><line class="line" x1=${x} x2=${x} y1=${bottomOf(service) + 3} y2=${ADMIN_TOP - 12} />${tip(x, ADMIN_TOP - 3, 'down')}
    <text class="figures" x=${x + 9} y=${ADMIN_TOP - 40}>facts</text></g>`;
}

/** Mark of a state beside its colour. @param {{ x: number, y: number, tone: string }} properties */
function Mark({ x, y, tone }) {
  if (tone === 'bad') return html`<rect class="mark" x=${x - 5} y=${y - 5} width="10" height="10" />`;
  if (tone === 'warn') return html`<path class="mark" d=${`M${x} ${y - 6} ${x + 6} ${y + 5} ${x - 6} ${y + 5}Z`} />`;
  return html`<circle class="mark" cx=${x} cy=${y} r="5" />`;
}

/** Lines of notes that fit into a box. */
const MOST_SHORT = 4;

/** Notes that fit into a box: the faults below a line of their own. @param {Note[]} notes */
function shortNotes(notes) {
  const texts = notes.map((one) => one.text), faults = texts.filter((text) => text.startsWith('fault: '));
  return [...texts.filter((text) => !faults.includes(text)), ...(faults.length > 0 ? ['injected:', ...faults.map((text) => text.slice(7))] : [])];
}

/** @param {{ overview: Overview, name: string }} properties */
function Box({ overview, name }) {
  const [x, y, width, height] = BOXES[name], service = serviceState(overview, name);
  const lines = serviceLines(service);
  const isWide = name === 'admin', { notes } = service;
  const short = isWide ? [notesText(notes, 1)] : shortNotes(notes).slice(0, MOST_SHORT);
  // What is drawn, and then the rest.
  const label = [name, service.state, ...lines, ...short, ...notes.slice(isWide ? 1 : MOST_SHORT).map((one) => one.text)].filter(Boolean).join(', ');
  return html`<${MapLink} to=${{ kind: 'service', name }} class=${`box ${service.tone}`} label=${label}>
    <rect class="shape" x=${x} y=${y} width=${width} height=${height} rx="8" />
    <text class="title" x=${x + 14} y=${y + 26}>${name}</text>${' '}
    <${Mark} x=${x + 19} y=${y + 42} tone=${service.tone} />
    <text class="state" x=${x + 31} y=${y + 46}>${service.state}</text>${' '}
    ${isWide ? html`<text class="figures" x=${x + 14} y=${y + 66}>${lines.join(' · ')} </text>` : lines.map((line, index) => html`<text key=${line}
      class="figures" x=${x + 14} y=${y + 70 + index * 17}>${line} </text>`)}
    ${isWide ? html`<text class="notes" x=${x + 14} y=${y + 83}>${short[0]}</text>`
      : short.map((text, index) => html`<text key=${text} class="notes" x=${x + 14} y=${y + 78 + (lines.length + index) * 17}>
        ${text} </text>`)}
  <//>`;
}

/** The steps of admin, inside of its box: each consumes from several services. @param {{ overview: Overview }} properties */
function AdminSteps({ overview }) {
  const [, y] = BOXES.admin;
  return html`${stepsOf('admin').map((step, index) => {
    const x = 212 + index * 264, arrow = arrowState(overview, step);
    return html`<${MapLink} key=${step.step} to=${{ kind: 'step', name: step.step }} class=${`arrow ${arrow.tone}`}
      label=${spoken(step.from.join(', '), 'admin', step.step, arrow)}>
      <rect class="hit chip" x=${x} y=${y + 12} width="252" height="68" rx="6" />
      <${Label} x=${x + 12} y=${y + 40} name=${step.step} arrow=${arrow} gap=${16} />
    <//>`;
  })}`;
}

/** @param {{ overview: Overview }} properties */
export const Drawing = ({ overview }) => html`<svg class="map" viewBox=${`0 0 ${WIDTH} ${HEIGHT}`} role="group"
  aria-label="Services, and the steps between them">
  ${['order', 'inventory', 'payment'].map((service) => html`<${Facts} key=${service} service=${service} />`)}
  ${SERVICES.map(({ name }) => html`<${Box} key=${name} overview=${overview} name=${name} />`)}
  ${ROWS.map(([name, from, row]) => {
    const step = stepNamed(name);
    return step && html`<${RowArrow} key=${`${name} ${from}`} from=${from} to=${step.owner} row=${row} name=${name} arrow=${arrowState(overview, step)}
      selects=${{ kind: 'step', name }} />`;
  })}
  <${RowArrow} from=${BANK_CALL.owner} to="bank" row=${0} name="calls of the bank" arrow=${callState(overview)}
    selects=${{ kind: 'call', name: BANK_CALL.name }} most=${1} />
  ${['order', 'inventory', 'payment'].map((service) => html`<${Commands} key=${service} overview=${overview} service=${service} />`)}
  <${AdminSteps} overview=${overview} />
</svg>`;
