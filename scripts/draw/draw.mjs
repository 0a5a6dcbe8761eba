// Draws dashboards with Grafana's own components, from a running Prometheus, in headless Chromium.
//
//   node draw.mjs DASHBOARDS PROMETHEUS OUT --to SECONDS [--minutes N] [--closed] [--light] [--vision DEFICIENCY]
//
// Writes OUT/NAME.png and OUT/NAME.json, which lists what each panel shows. --closed leaves closed rows closed, as a reader meets
// them; --vision shows them as, for example, people with deuteranopia see them. The variable CHROMIUM names the browser.
// scripts/draw-dashboards.sh calls it.
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { basename, dirname, join } from 'node:path';
import { parseArgs } from 'node:util';
import { build } from 'esbuild';
import puppeteer from 'puppeteer-core';

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    to: { type: 'string' }, minutes: { type: 'string', default: '15' }, closed: { type: 'boolean', default: false },
    light: { type: 'boolean', default: false }, vision: { type: 'string', default: 'none' },
  },
});
const [dashboards, prometheus, out] = positionals;
const here = import.meta.dirname;

/** Node's own modules, which no panel needs, are empty. */
const withoutNode = { name: 'without-node', setup(bundler) {
  bundler.onResolve({ filter: /^(fs|path|crypto|stream|util|url|http|https|zlib|os|child_process|net|tls)$/ }, (found) => ({ path: found.path, namespace: 'empty' }));
  bundler.onLoad({ filter: /.*/, namespace: 'empty' }, () => ({ contents: 'module.exports = {}' }));
} };

/** Loads `.mjs` files as `.js`: for the first esbuild takes the default export of CommonJS modules as Node does, and Grafana's packages expect a
 *  bundler's view. */
const interoperable = { name: 'interoperable', setup(bundler) {
  const seen = Symbol('resolved here');
  bundler.onResolve({ filter: /.*/ }, async ({ path, kind, resolveDir, pluginData }) => {
    if (pluginData === seen) return undefined;
    const found = await bundler.resolve(path, { kind, resolveDir, pluginData: seen });
    return found.errors.length > 0 || !found.path.endsWith('.mjs') ? found : { path: `${found.path}.js`, namespace: 'interoperable', sideEffects: found.sideEffects };
  });
  bundler.onLoad({ filter: /.*/, namespace: 'interoperable' }, ({ path }) => {
    const file = path.slice(0, -'.js'.length);
    return { contents: readFileSync(file, 'utf8'), resolveDir: dirname(file), loader: 'js' };
  });
} };

const bundle = await build({
  entryPoints: [join(here, 'app.jsx')],
  bundle: true,
  write: false,
  outdir: '/',
  format: 'esm',
  platform: 'browser',
  jsx: 'automatic',
  logLevel: 'error',
  define: { 'process.env.NODE_ENV': '"production"', global: 'window' },
  loader: { '.svg': 'text', '.woff2': 'dataurl', '.woff': 'dataurl', '.ttf': 'dataurl', '.png': 'dataurl' },
  plugins: [withoutNode, interoperable],
  conditions: ['module', 'import', 'browser'],
  mainFields: ['module', 'browser', 'main'],
});
const output = (ending) => bundle.outputFiles.find((file) => file.path.endsWith(ending)).contents;
const page = `<!doctype html><meta charset="utf-8"><link rel="stylesheet" href="/app.css"><script>window.__grafana_public_path__ = '/public/'</script>
<body style="margin:0"><div id="root"></div><script type="module" src="/app.js"></script>`;
const icons = join(here, 'node_modules/@grafana/ui/dist/public');
const server = createServer((request, response) => {
  const path = decodeURIComponent(new URL(request.url, 'http://here').pathname);
  const send = (type, body) => { response.writeHead(200, { 'content-type': type }); response.end(body); };
  try {
    if (path === '/') return send('text/html', page);
    if (path === '/app.js') return send('text/javascript', output('.js'));
    if (path === '/app.css') return send('text/css', output('.css'));
    if (path.startsWith('/dashboards/')) return send('application/json', readFileSync(join(dashboards, basename(path))));
    if (path.startsWith('/public/')) return send(path.endsWith('.svg') ? 'image/svg+xml' : 'application/octet-stream', readFileSync(join(icons, path.slice('/public/'.length))));
  } catch { /* not found */ }
  response.writeHead(404).end();
});
await new Promise((ready) => server.listen(0, '127.0.0.1', ready));

mkdirSync(out, { recursive: true });
const browser = await puppeteer.launch({
  executablePath: process.env.CHROMIUM,
  args: ['--no-sandbox', '--force-color-profile=srgb', '--hide-scrollbars', '--disable-dev-shm-usage'],
});
try {
  for (const file of readdirSync(dashboards).filter((name) => name.endsWith('.json')).sort()) {
    const name = basename(file, '.json');
    const tab = await browser.newPage();
    await tab.setViewport({ width: 1600, height: 1000 });
    await tab.emulateVisionDeficiency(values.vision);
    tab.on('pageerror', (error) => console.error(`${name}: ${error.message}`));
    const to = Number(values.to ?? Date.now() / 1000);
    // "2 minutes ago" is as seen from the end of the range.
    await tab.evaluateOnNewDocument((ahead) => {
      const Clock = Date;
      window.Date = class extends Clock {
        constructor(...given) { super(...(given.length > 0 ? given : [Clock.now() + ahead])); }
        static now() { return Clock.now() + ahead; }
      };
    }, to * 1000 - Date.now());
    const query = new URLSearchParams({ name, prometheus, to, from: to - 60 * Number(values.minutes), closed: values.closed, theme: values.light ? 'light' : 'dark' });
    await tab.goto(`http://127.0.0.1:${server.address().port}/?${query}`);
    await tab.waitForFunction('window.shown?.done', { timeout: 60_000 });
    const shown = await tab.evaluate('window.shown');
    await tab.setViewport({ width: 1600, height: Math.ceil(shown.height) });
    // Panels are drawn on canvases after the layout.
    await tab.evaluate(() => new Promise((drawn) => setTimeout(drawn, 700)));
    await tab.screenshot({ path: join(out, `${name}.png`) });
    const { height, done, ...rest } = await tab.evaluate('window.shown');
    writeFileSync(join(out, `${name}.json`), JSON.stringify(rest, null, 1));
    await tab.close();
  }
} finally {
  await browser.close();
  server.close();
}
