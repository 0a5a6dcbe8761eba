// One dashboard, drawn with @grafana/data and @grafana/ui. The state timeline, which is in neither, is drawn here.
// window.shown lists what each panel shows.
import '@fontsource/inter/400.css';
import '@fontsource/inter/500.css';
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from 'react';
import { createRoot } from 'react-dom/client';
import { firstValueFrom } from 'rxjs';
import {
  applyFieldOverrides, createTheme, dateTime, EventBusSrv, FieldType, getFieldDisplayName, getFieldDisplayValues, rangeUtil,
  standardEditorsRegistry, standardFieldConfigEditorRegistry, standardTransformers, standardTransformersRegistry, transformDataFrame, VizOrientation,
} from '@grafana/data';
import { BigValue, GlobalStyles, PanelChrome, PanelContextProvider, Table, ThemeContext, TimeSeries, VizRepeater } from '@grafana/ui';

const url = new URLSearchParams(location.search);
const from = 1000 * url.get('from'), to = 1000 * url.get('to'), prometheus = url.get('prometheus');
const WIDTH = 1600, GAP = 8, ROW = 30;
const theme = createTheme({ colors: { mode: url.get('theme') } });
const range = { from: dateTime(from), to: dateTime(to), raw: { from: dateTime(from), to: dateTime(to) } };
const bus = new EventBusSrv();
window.shown = { panels: [], errors: [], marks: [], height: 0, done: false };

// --- registries that Grafana fills at its start ---------------------------------------------------------------------------

const option = (id, path, custom) => ({ id, path, name: id, isCustom: custom, process: (value) => value, shouldApply: () => true, override: () => null, editor: () => null });
standardEditorsRegistry.setInit(() => []);
standardFieldConfigEditorRegistry.setInit(() => [
  ...['unit', 'min', 'max', 'decimals', 'noValue', 'displayName', 'thresholds', 'mappings', 'color', 'links'].map((id) => option(id, id, false)),
  ...['hidden', 'width', 'align', 'cellOptions', 'lineWidth', 'fillOpacity', 'lineStyle', 'stacking', 'scaleDistribution', 'axisSoftMax'].map((id) => option(`custom.${id}`, id, true)),
]);
const transformers = new Map(Object.values(standardTransformers).map((one) => [one.id, { id: one.id, name: one.name, transformation: async () => one }]));
standardTransformersRegistry.setInit(() => [...transformers.values()]);

// --- queries --------------------------------------------------------------------------------------------------------------

async function ask(path, parameters) {
  const response = await (await fetch(`${prometheus}/api/v1/${path}?${new URLSearchParams(parameters)}`)).json();
  if (response.status !== 'success') throw new Error(response.error);
  return response.data.result;
}

const number = (text) => ({ '+Inf': Infinity, '-Inf': -Infinity })[text] ?? parseFloat(text);
const legend = (labels, format) => format.replace(/\{\{\s*(\w+)\s*\}\}/g, (_, label) => labels[label] ?? '');

/** The frames of a panel, as Grafana's data source for Prometheus makes them. */
async function framesOf(panel, width) {
  const interval = Math.max(5000, rangeUtil.calculateInterval(range, Math.floor(width), '5s').intervalMs), step = interval / 1000;
  const frames = [];
  for (const target of panel.targets) {
    const expression = target.expr.replaceAll('$__range', `${Math.round((to - from) / 1000)}s`);
    try {
      if (target.format === 'table') {
        const found = await ask('query', { query: expression, time: to / 1000 });
        if (found.length === 0) continue;
        const labels = [...new Set(found.flatMap((one) => Object.keys(one.metric)))].sort();
        const value = panel.targets.length > 1 ? `Value #${target.refId}` : 'Value';
        frames.push({ refId: target.refId, length: found.length, fields: [
          { name: 'Time', type: FieldType.time, config: {}, values: found.map((one) => one.value[0] * 1000) },
          ...labels.map((name) => ({ name, type: FieldType.string, config: {}, values: found.map((one) => one.metric[name] ?? '') })),
          { name: value, type: FieldType.number, config: {}, values: found.map((one) => number(one.value[1])) }] });
        continue;
      }
      const found = target.instant
        ? (await ask('query', { query: expression, time: to / 1000 })).map((one) => ({ ...one, values: [one.value] }))
        : await ask('query_range', { query: expression, start: Math.floor(from / interval) * step, end: Math.floor(to / interval) * step, step });
      for (const { metric, values } of found) {
        frames.push({ refId: target.refId, length: values.length, fields: [
          { name: 'Time', type: FieldType.time, config: { interval }, values: values.map(([at]) => at * 1000) },
          { name: 'Value', type: FieldType.number, labels: metric, config: { displayNameFromDS: legend(metric, target.legendFormat) }, values: values.map(([, value]) => number(value)) }] });
      }
    } catch (error) {
      window.shown.errors.push(`${panel.title}: ${error.message}: ${expression}`);
    }
  }
  if (!panel.transformations?.length) return frames;
  return firstValueFrom(transformDataFrame(panel.transformations, frames, { interpolate: (text) => text }));
}

/** Starts of what the dashboard marks. */
async function marksOf(dashboard) {
  const marks = [];
  for (const { expr, step, enable } of dashboard.annotations.list) {
    if (!enable || !expr) continue;
    const seconds = rangeUtil.intervalToSeconds(step);
    for (const { metric, values } of await ask('query_range', { query: expr, start: from / 1000, end: to / 1000, step: seconds })) {
      let before = -Infinity;
      for (const [at] of values) {
        if (at - before > seconds) marks.push({ at, name: metric.alertname });
        before = at;
      }
    }
  }
  return marks;
}

// --- panels ---------------------------------------------------------------------------------------------------------------

const GRAPH = {
  drawStyle: 'line', lineInterpolation: 'linear', barAlignment: 0, lineWidth: 1, fillOpacity: 0, gradientMode: 'none', spanNulls: false, insertNulls: false,
  showPoints: 'never', pointSize: 5, stacking: { mode: 'none', group: 'A' }, axisPlacement: 'auto', axisLabel: '', axisColorMode: 'text', axisBorderShow: false,
  scaleDistribution: { type: 'linear' }, axisCenteredZero: false, hideFrom: { tooltip: false, viz: false, legend: false }, thresholdsStyle: { mode: 'off' },
};

function withConfig(panel, frames, custom) {
  const config = structuredClone(panel.fieldConfig);
  config.defaults.custom = { ...custom, ...config.defaults.custom };
  config.defaults.thresholds ??= { mode: 'absolute', steps: [{ color: 'green', value: null }] };
  // JSON has no infinity.
  for (const one of config.defaults.thresholds.steps) one.value ??= -Infinity;
  return applyFieldOverrides({ data: frames, fieldConfig: config, replaceVariables: (text) => text, theme, timeZone: 'utc' });
}

const Nothing = ({ panel, width, height }) => (
  <div style={{ width, height, display: 'grid', placeItems: 'center', color: theme.colors.text.secondary, fontSize: 16 }}>{panel.fieldConfig.defaults.noValue ?? 'No data'}</div>
);

function Stat({ panel, frames, width, height, note }) {
  const data = useMemo(() => withConfig(panel, frames), []);
  const { reduceOptions, ...options } = panel.options;
  const config = structuredClone(panel.fieldConfig);
  const values = getFieldDisplayValues({ fieldConfig: config, reduceOptions, replaceVariables: (text) => text, theme, data, sparkline: false, timeZone: 'utc' });
  note({ values: values.map(({ display }) => ({ text: `${display.prefix ?? ''}${display.text}${display.suffix ?? ''}`, color: display.color })) });
  return <VizRepeater width={width} height={height} source={values} getValues={() => values} renderCounter={1} itemSpacing={3} orientation={VizOrientation.Auto} autoGrid
    renderValue={(one) => <BigValue {...options} {...one} value={one.value.display} theme={theme} />} />;
}

const Marks = ({ config }) => {
  useLayoutEffect(() => config.addHook('draw', ({ ctx, bbox, valToPos }) => {
    ctx.save();
    ctx.strokeStyle = '#D55E00';
    ctx.setLineDash([4, 4]);
    for (const { at } of window.shown.marks) {
      const x = valToPos(at * 1000, 'x', true);
      ctx.beginPath(); ctx.moveTo(x, bbox.top); ctx.lineTo(x, bbox.top + bbox.height); ctx.stroke();
    }
    ctx.restore();
  }), [config]);
  return null;
};

/** What is no number is a gap, and so is a missing point. */
function withGaps({ fields: [time, value], ...frame }) {
  const times = [], values = [];
  time.values.forEach((at, index) => {
    if (index > 0 && at - time.values[index - 1] > time.config.interval) { times.push(at - 1); values.push(null); }
    times.push(at); values.push(Number.isFinite(value.values[index]) ? value.values[index] : null);
  });
  return { ...frame, length: times.length, fields: [{ ...time, values: times }, { ...value, values }] };
}

function Graph({ panel, frames, width, height, note }) {
  const data = useMemo(() => withConfig(panel, frames.map(withGaps), GRAPH), []);
  note({ series: data.map((frame) => getFieldDisplayName(frame.fields[1], frame, data)) });
  if (data.every((frame) => frame.fields[1].values.every((value) => value === null))) return <Nothing {...{ panel, width, height }} />;
  return <TimeSeries frames={data} structureRev={1} timeRange={range} timeZone="utc" width={width} height={height} legend={panel.options.legend} options={panel.options}>
    {(config) => <Marks config={config} />}
  </TimeSeries>;
}

function Grid({ panel, frames, width, height, note }) {
  const data = useMemo(() => withConfig(panel, frames, { align: 'auto', cellOptions: { type: 'auto' }, inspect: false }), []);
  const [first] = data;
  const visible = first?.fields.filter((field) => !field.config.custom?.hidden) ?? [];
  const text = (field, index) => { const { text, suffix = '', prefix = '' } = field.display(field.values[index]); return prefix + text + suffix; };
  note({ columns: visible.map((field) => field.name), rows: Array.from({ length: first?.length ?? 0 }, (_, index) => visible.map((field) => text(field, index))) });
  if (!first?.length) return <Nothing {...{ panel, width, height }} />;
  return <Table width={width} height={height} data={first} cellHeight="sm" columnMinWidth={60} resizable={false} showTypeIcons={false} timeRange={range} />;
}

function States({ panel, frames, width, height, note }) {
  const data = useMemo(() => withConfig(panel, frames), []);
  const canvas = useRef();
  const names = data.map((frame) => getFieldDisplayName(frame.fields[1], frame, data));
  const last = (frame) => frame.fields[1].display(frame.fields[1].values.at(-1)).text;
  note({ series: names, states: Object.fromEntries(data.map((frame, index) => [names[index], last(frame)])) });
  useLayoutEffect(() => {
    if (data.length === 0) return;
    const ratio = window.devicePixelRatio, draw = canvas.current.getContext('2d');
    canvas.current.width = width * ratio; canvas.current.height = height * ratio; draw.scale(ratio, ratio);
    draw.font = '12px Inter, Helvetica, sans-serif'; draw.textBaseline = 'middle';
    const left = 12 + Math.max(...names.map((name) => draw.measureText(name).width)), line = (height - 20) / data.length;
    const place = (at) => left + ((width - left) * (at - from)) / (to - from);
    data.forEach((frame, row) => {
      const [time, value] = frame.fields, step = time.config.interval;
      draw.fillStyle = theme.colors.text.primary; draw.textAlign = 'right'; draw.fillText(names[row], left - 6, line * (row + 0.5));
      draw.textAlign = 'left';
      // Equal neighbours are one band, with its name where it fits.
      for (let begin = 0; begin < time.values.length;) {
        let end = begin;
        while (end + 1 < time.values.length && value.values[end + 1] === value.values[begin] && time.values[end + 1] - time.values[end] <= step) end += 1;
        if (!Number.isNaN(value.values[begin])) {
          const shown = value.display(value.values[begin]), x = place(time.values[begin]), wide = place(Math.min(time.values[end] + step, to)) - x;
          draw.globalAlpha = 0.8; draw.fillStyle = shown.color; draw.fillRect(x, line * (row + 0.08), wide, line * 0.84); draw.globalAlpha = 1;
          if (draw.measureText(shown.text).width + 8 < wide) { draw.fillStyle = theme.colors.getContrastText(shown.color); draw.fillText(shown.text, x + 4, line * (row + 0.5)); }
        }
        begin = end + 1;
      }
    });
    draw.fillStyle = theme.colors.text.secondary; draw.textAlign = 'center';
    const every = 60_000 * Math.ceil((to - from) / 6 / 60_000);
    for (let at = every * Math.ceil(from / every); at < to; at += every) draw.fillText(new Date(at).toISOString().slice(11, 16), place(at), height - 8);
  });
  return data.length === 0 ? <Nothing {...{ panel, width, height }} /> : <canvas ref={canvas} style={{ width, height }} />;
}

const KINDS = { stat: Stat, timeseries: Graph, table: Grid, 'state-timeline': States };

function Panel({ panel, box, ready }) {
  const [frames, set] = useState(null);
  const entry = useMemo(() => ({ id: panel.id, title: panel.title, type: panel.type }), []);
  useEffect(() => { framesOf(panel, box.width).then(set).catch((error) => { window.shown.errors.push(`${panel.title}: ${error.message}`); set([]); }); }, []);
  useEffect(() => { if (frames) ready(); }, [frames]);
  const note = (what) => { Object.assign(entry, what); if (!window.shown.panels.includes(entry)) window.shown.panels.push(entry); };
  const Kind = KINDS[panel.type];
  return <div style={{ position: 'absolute', left: box.left, top: box.top }}>
    <PanelChrome title={panel.title} description={panel.description} width={box.width} height={box.height} padding={panel.type === 'stat' ? 'none' : 'md'}>
      {(width, height) => frames && <PanelContextProvider value={{ eventsScope: 'global', eventBus: bus, sync: () => 0, app: 'dashboard', canAddAnnotations: () => false }}>
        <Kind {...{ panel, frames, width, height, note }} /></PanelContextProvider>}
    </PanelChrome>
  </div>;
}

/** The panels and row titles to draw. Open rows have the room that their generator leaves them; closed ones follow each other. */
function laidOut(panels, isClosed) {
  const rows = panels.filter((panel) => panel.type === 'row');
  return panels.flatMap((panel) => {
    if (panel.type !== 'row') return [{ panel, y: panel.gridPos.y }];
    if (isClosed) return [{ panel, y: rows[0].gridPos.y + rows.indexOf(panel) }];
    return [panel, ...panel.panels].map((one) => ({ panel: one, y: one.gridPos.y }));
  });
}

function Dashboard({ dashboard }) {
  const panels = laidOut(dashboard.panels, url.get('closed') === 'true');
  const column = (WIDTH - 32 - 23 * GAP) / 24, top = 48;
  const boxOf = ({ x, w, h }, y) => ({ left: 16 + x * (column + GAP), top: top + y * (ROW + GAP), width: w * column + (w - 1) * GAP, height: h * ROW + (h - 1) * GAP });
  const waiting = useRef(panels.filter(({ panel }) => panel.type !== 'row').length);
  const ready = () => { waiting.current -= 1; if (waiting.current === 0) window.shown.done = true; };
  window.shown.height = top + Math.max(...panels.map(({ panel, y }) => (y + panel.gridPos.h) * (ROW + GAP))) + 8;
  return <div style={{ position: 'relative', width: WIDTH, height: window.shown.height, background: theme.colors.background.canvas, color: theme.colors.text.primary, fontFamily: theme.typography.fontFamily }}>
    <div style={{ padding: '14px 16px', display: 'flex', justifyContent: 'space-between' }}>
      <b>{dashboard.title}</b><span>{new Date(from).toISOString().slice(0, 19)} to {new Date(to).toISOString().slice(11, 19)} UTC</span>
    </div>
    {panels.map(({ panel, y }) => panel.type === 'row'
      ? <div key={panel.id} style={{ position: 'absolute', left: 16, top: boxOf(panel.gridPos, y).top + 6, fontWeight: 500 }}>{url.get('closed') === 'true' ? '›' : '⌄'} {panel.title}</div>
      : <Panel key={panel.id} panel={panel} box={boxOf(panel.gridPos, y)} ready={ready} />)}
  </div>;
}

const dashboard = await (await fetch(`/dashboards/${url.get('name')}.json`)).json();
window.shown.marks = await marksOf(dashboard);
createRoot(document.getElementById('root')).render(<ThemeContext.Provider value={theme}><GlobalStyles /><Dashboard dashboard={dashboard} /></ThemeContext.Provider>);
