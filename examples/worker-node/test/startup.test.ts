// The start: joined, tried again, bounded.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { failure } from '../src/errors.js';
import { Lifecycle } from '../src/lifecycle.js';
import { callerFor, gate, hang, instanceIn, outcome, states } from './rig.js';

test('concurrent callers join one start', async () => {
  let runs = 0;
  const start = gate();
  const instance = new Lifecycle({ start: (signal) => { runs++; return start.hook(signal); } });
  const callers = Array.from({ length: 10 }, () => outcome(() => instance.startup()));
  await start.begun;
  start.open();
  assert.deepEqual(new Set(await Promise.all(callers)), new Set(['OK']));
  assert.equal(runs, 1);
  assert.ok(instance.metrics().startupTime > 0);
});

test('a caller who gives up leaves the start alone', async () => {
  const { instance, free } = await instanceIn('INITIALIZING');
  assert.equal(await outcome(() => instance.startup(callerFor(20))), 'AGENT_TIMEOUT');
  assert.equal(instance.status().state, 'INITIALIZING');
  free();
  assert.equal(await outcome(() => instance.startup()), 'OK');
});

test('a failed try is freed and tried again', async () => {
  const calls: string[] = [];
  const instance = new Lifecycle({
    maxRetries: 2,
    start: async () => { calls.push('start'); if (calls.length < 4) throw new Error('not yet'); },
    stop: async () => { calls.push('stop'); },
  });
  assert.equal(await outcome(() => instance.startup()), 'OK');
  assert.deepEqual(calls, ['start', 'stop', 'start', 'stop', 'start']);
});

test('a try that cannot be freed is the last', async () => {
  let starts = 0;
  const logged: string[] = [];
  const instance = new Lifecycle({
    maxRetries: 2,
    start: async () => { starts++; throw failure('SYSTEM_NETWORK', 'test', 'no database'); },
    stop: async () => { throw new Error('still there'); },
    log: (message) => logged.push(message),
  });
  assert.equal(await outcome(() => instance.startup()), 'SYSTEM_NETWORK');
  assert.equal(starts, 1);
  assert.equal(instance.status().state, 'TERMINATED');
  assert.ok(logged.includes('a failed try could not be cleaned up'));
});

test('a start that fails for good ends the instance and says why', async () => {
  let stops = 0;
  const instance = new Lifecycle({
    maxRetries: 1,
    start: async () => { throw failure('SYSTEM_NETWORK', 'test', 'no database'); },
    stop: async () => { stops++; },
  });
  assert.equal(await outcome(() => instance.startup()), 'SYSTEM_NETWORK');
  assert.deepEqual(await states(instance), ['INITIALIZING', 'SHUTTING_DOWN', 'TERMINATED']);
  assert.equal(stops, 2);
});

test('a start that hangs is given up', async () => {
  const instance = new Lifecycle({ start: hang, timeout: 30 });
  assert.equal(await outcome(() => instance.startup()), 'AGENT_TIMEOUT');
  assert.equal(instance.status().state, 'TERMINATED');
});

test('a failed instance can be kept until its shutdown', async () => {
  let stops = 0;
  const instance = new Lifecycle({
    keepFailed: true,
    start: async () => { throw new Error('no'); },
    stop: async () => { stops++; },
  });
  assert.equal(await outcome(() => instance.startup()), 'AGENT_LOGIC');
  assert.equal(instance.status().state, 'INITIALIZING');
  assert.equal(stops, 0);
  assert.deepEqual(await instance.shutdown(0, 'test'), []);
  assert.equal(stops, 1);
});
