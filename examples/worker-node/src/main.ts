// A worker of the mesh in TypeScript. SIGTERM drains it; a second one ends it at once.

import { wordCounter } from './agent.js';
import { readConfig, usage } from './config.js';
import { serveConformance } from './conformance.js';
import { serve } from './worker.js';

// Exit codes of every program of the mesh.
const ok = 0;
const failed = 1;
const misused = 2;

/** A signal that ends with the first SIGINT or SIGTERM; the next one has its usual effect. */
function stopSignal(): AbortSignal {
  const controller = new AbortController();
  const names = ['SIGINT', 'SIGTERM'] as const;
  const stop = () => {
    for (const name of names) process.off(name, stop);
    controller.abort();
  };
  for (const name of names) process.on(name, stop);
  return controller.signal;
}

async function main(): Promise<number> {
  const stop = stopSignal();
  let config;
  try {
    config = readConfig(process.argv.slice(2), process.env);
  } catch (err) {
    process.stderr.write(`worker: ${(err as Error).message}\nSee --help.\n`);
    return misused;
  }
  if (!config) {
    process.stdout.write(usage());
    return ok;
  }
  try {
    await (config.conformance ? serveConformance(config, stop) : serve(config, wordCounter(config.agent), stop));
    return ok;
  } catch (err) {
    process.stderr.write(`worker: ${(err as Error).message}\n`);
    return failed;
  }
}

process.exit(await main());
