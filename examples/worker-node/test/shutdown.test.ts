// The end: it drains, it is bounded, and it never fails. And the history of what happened.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Lifecycle } from '../src/lifecycle.js';
import { historyLimit } from '../src/machine.js';
import { self } from '../src/state.js';
import { gate, hang, instanceIn, outcome, states } from './rig.js';

test('a step that ends within the drain ends as always, and does not revive the instance', async () => {
  const { instance, free } = await instanceIn('BUSY');
  const end = instance.shutdown(60_000, 'test');
  assert.equal(instance.status().draining, true);
  free();
  assert.deepEqual(await end, []);
  assert.deepEqual((await states(instance)).slice(-3), ['BUSY', 'SHUTTING_DOWN', 'TERMINATED']);
});

test('a later call shrinks the drain and never lengthens it', async () => {
  const { instance } = await instanceIn('READY');
  const step = instance.admit(self());
  step.signal.addEventListener('abort', () => step.end(true));
  const first = instance.shutdown(60_000, 'test');
  const second = instance.shutdown(10, 'hurry');
  const third = instance.shutdown(60_000, 'no hurry');
  assert.deepEqual(await first, ['drain: steps cancelled at the deadline: 1']);
  assert.equal(await second, await first);
  assert.equal(await third, await first);
  assert.equal((step.signal.reason as { mode: string }).mode, 'INSTANCE_DRAINING');
});

test('it leaves discovery first, and frees what was taken when no step runs any more', async () => {
  const order: string[] = [];
  const { instance, free } = await instanceIn('BUSY', {
    leave: async () => void order.push('leave'),
    stop: async () => void order.push('stop'),
  });
  const end = instance.shutdown(60_000, 'test');
  order.push('step');
  free();
  await end;
  assert.deepEqual(order, ['leave', 'step', 'stop']);
});

test('hooks that hang or throw are named, and the instance is TERMINATED within a second of the deadline', async () => {
  const instance = new Lifecycle({ leave: async () => { throw new Error('no\nregistry'); }, stop: hang });
  await instance.startup();
  const began = performance.now();
  const errors = await instance.shutdown(0, 'test');
  assert.ok(performance.now() - began < 1250);
  assert.deepEqual(errors, ['leave: no registry', 'stop: it did not return in time and was given up']);
  assert.equal(instance.status().state, 'TERMINATED');
});

test('a step that does not heed its cancellation is given up', async () => {
  const { instance, free } = await instanceIn('BUSY');
  const errors = await instance.shutdown(0, 'test');
  assert.match(errors[0]!, /given up, as they did not end: 1/);
  free();
  assert.equal(instance.status().state, 'TERMINATED');
});

test('a shutdown cancels the start, and before the start there is nothing to free', async () => {
  const start = gate();
  const starting = new Lifecycle({ start: start.hook });
  const startup = outcome(() => starting.startup());
  await start.begun;
  await starting.shutdown(60_000, 'test');
  assert.equal(await startup, 'AGENT_STATE');

  let stops = 0;
  const unused = new Lifecycle({ stop: async () => void stops++ });
  await unused.shutdown(0, 'test');
  assert.equal(stops, 0);
  assert.deepEqual(await states(unused), ['SHUTTING_DOWN', 'TERMINATED']);
});

test('a watch tells every transition, and the latest 1,024 are remembered', async () => {
  const { instance } = await instanceIn('READY');
  for (let i = 0; i < historyLimit / 2; i++) {
    await instance.pause(self(), 'test');
    instance.resume(self(), 'test');
  }
  const versions = async (after: number) => {
    const seen: number[] = [];
    for await (const { transition } of instance.watch(after, new AbortController().signal)) {
      if (transition) seen.push(transition.version);
      if (transition?.version === historyLimit) void instance.shutdown(0, 'test');
    }
    return seen;
  };
  assert.equal(await outcome(() => versions(1)), 'RESOURCE_QUOTA');
  assert.equal(await outcome(() => versions(historyLimit + 3)), 'USER_INVALID_INPUT');
  assert.deepEqual(await versions(2), Array.from({ length: historyLimit + 2 }, (_, i) => i + 3));
});
