// Line charts over time.
import { html, useEffect, useRef } from './html.js';
import uPlot from '../vendor/uplot.js';

/** @param {string} name */
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/**
 * @param {{ label: string, series: { label: string, colour: string }[], data: (number | null)[][], height?: number }} properties
 *   data: seconds since 1970, then the values of each series; colour: a custom property of the style sheet
 */
export function Chart({ label, series, data, height = 150 }) {
  const holder = useRef(/** @type {HTMLDivElement | null} */ (null));
  const plot = useRef(/** @type {uPlot | null} */ (null));
  useEffect(() => {
    const element = holder.current;
    if (!element) return undefined;
    const dark = matchMedia('(prefers-color-scheme: dark)');
    const draw = () => {
      plot.current?.destroy();
      const axis = { stroke: colour('--quiet'), grid: { stroke: colour('--line'), width: 1 }, ticks: { show: false }, font: '11px system-ui' };
      plot.current = new uPlot({
        width: element.clientWidth || 300, height,
        cursor: { y: false }, legend: { live: false },
        scales: { y: { range: (_, __, most) => [0, Math.max(1, most * 1.1)] } },
        axes: [{ ...axis, space: 80, values: (_, times) => times.map((time) => new Date(time * 1000).toLocaleTimeString('en-GB', { hour: '2-digit', minute: '2-digit' })) }, { ...axis, size: 40 }],
        series: [{}, ...series.map((one) => ({ label: one.label, stroke: colour(one.colour), width: 1.5, points: { show: false } }))],
      }, /** @type {any} */ (data), element);
    };
    draw();
    const resized = new ResizeObserver(() => plot.current?.setSize({ width: element.clientWidth, height }));
    resized.observe(element);
    dark.addEventListener('change', draw);
    return () => {
      resized.disconnect();
      dark.removeEventListener('change', draw);
      plot.current?.destroy();
    };
  }, []);
  useEffect(() => plot.current?.setData(/** @type {any} */ (data)), [data]);
  return html`<div class="chart" role="img" aria-label=${label} ref=${holder}></div>`;
}
