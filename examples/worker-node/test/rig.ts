// What the tests share: callers with a deadline, hooks that are let go by hand, and instances in each state.

import { Failure } from '../src/errors.js';
import type { Hook } from '../src/hook.js';
import { Lifecycle, type LifecycleConfig } from '../src/lifecycle.js';
import { self, type Caller, type State } from '../src/state.js';

/** A caller whose time is up after so many milliseconds. */
export function callerFor(ms: number): Caller {
  const controller = new AbortController();
  setTimeout(() => controller.abort(), ms);
  return { ...self(), signal: controller.signal, deadline: Date.now() + ms };
}

/** A hook that ends when it is let go, or with its signal. */
export function gate(): { hook: Hook; begun: Promise<void>; open: () => void } {
  let open = () => {};
  let begin = () => {};
  const opened = new Promise<void>((resolve) => (open = resolve));
  const begun = new Promise<void>((resolve) => (begin = resolve));
  const hook: Hook = (signal) => {
    begin();
    return Promise.race([opened, new Promise<never>((_, reject) => signal.addEventListener('abort', () => reject(signal.reason), { once: true }))]);
  };
  return { hook, begun, open };
}

/** A hook that never returns. */
export const hang: Hook = () => new Promise<never>(() => {});

/** An instance in the state; free lets it go on from there. */
export async function instanceIn(state: State, config: LifecycleConfig = {}): Promise<{ instance: Lifecycle; free: () => void }> {
  const start = gate();
  const instance = new Lifecycle({ capacity: 2, ...config, ...(state === 'INITIALIZING' ? { start: start.hook } : {}) });
  let free = () => {};
  if (state === 'UNINITIALIZED') return { instance, free };
  const starting = instance.startup();
  if (state === 'INITIALIZING') {
    starting.catch(() => {}); // a shutdown may come first
    await start.begun;
    return { instance, free: start.open };
  }
  await starting;
  if (state === 'BUSY' || state === 'SHUTTING_DOWN') {
    const step = instance.admit(self());
    free = () => step.end(false);
  }
  if (state === 'PAUSED') await instance.pause(self(), 'test');
  if (state === 'SHUTTING_DOWN') void instance.shutdown(60_000, 'test');
  if (state === 'TERMINATED') await instance.shutdown(0, 'test');
  return { instance, free };
}

/** The mode of the failure, or OK. */
export async function outcome(work: () => unknown): Promise<string> {
  try {
    await work();
    return 'OK';
  } catch (err) {
    if (err instanceof Failure) return err.mode;
    throw err;
  }
}

/** Every state that the instance was in, in order. */
export async function states(instance: Lifecycle): Promise<string[]> {
  const seen: string[] = [];
  const { version } = instance.status();
  if (version === 0) return seen;
  for await (const { transition } of instance.watch(0, new AbortController().signal)) {
    if (transition) seen.push(transition.to);
    if (transition?.version === version) break;
  }
  return seen;
}
