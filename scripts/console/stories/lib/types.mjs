// Writes the types of admin's API, openapi.d.ts, from a running admin.
import { writeFileSync } from 'node:fs';
import openapi, { astToString } from 'openapi-typescript';
import { System } from './system.mjs';

const system = await System.start('--no-seed');
try {
  writeFileSync('openapi.d.ts', astToString(await openapi(new URL(`${system.url}/openapi.json`))));
} finally {
  await system.stop();
}
