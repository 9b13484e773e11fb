// Which steps run, and what a pause does to them.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { self } from '../src/state.js';
import { callerFor, instanceIn, outcome, states } from './rig.js';

test('of many steps exactly capacity get in', async () => {
  const { instance } = await instanceIn('READY', { capacity: 3 });
  const outcomes = await Promise.all(Array.from({ length: 20 }, () => outcome(() => instance.admit(self()))));
  assert.equal(outcomes.filter((o) => o === 'OK').length, 3);
  assert.equal(outcomes.filter((o) => o === 'INSTANCE_FULL').length, 17);
  assert.equal(instance.status().inFlight, 3);
});

test('BUSY lasts from the first step to the end of the last', async () => {
  const { instance } = await instanceIn('READY');
  const steps = [instance.admit(self()), instance.admit(self())];
  steps[0]!.end(true);
  steps[0]!.end(true); // counts once
  assert.equal(instance.status().state, 'BUSY');
  steps[1]!.end(false);
  assert.deepEqual(await states(instance), ['INITIALIZING', 'READY', 'BUSY', 'READY']);
  const { totalRequests, failedRequests, stateTransitions } = instance.metrics();
  assert.deepEqual({ totalRequests, failedRequests, stateTransitions }, { totalRequests: 2, failedRequests: 1, stateTransitions: 4 });
});

test('no step begins while the lease is expired', async () => {
  const { instance } = await instanceIn('READY');
  instance.setLease('EXPIRED');
  assert.equal(await outcome(() => instance.admit(self())), 'INSTANCE_PAUSED');
  instance.setLease('UNKNOWN'); // etcd does not answer: the worker goes on
  assert.equal(await outcome(() => instance.admit(self())), 'OK');
});

test('a pause while busy refuses steps and waits for those that run', async () => {
  const { instance, free } = await instanceIn('BUSY');
  const pause = outcome(() => instance.pause(self(), 'a look'));
  assert.equal(instance.status().pausing, true);
  assert.equal(await outcome(() => instance.admit(self())), 'INSTANCE_PAUSED');
  free();
  assert.equal(await pause, 'OK');
  const { state, pausing, reason } = instance.status();
  assert.deepEqual({ state, pausing, reason }, { state: 'PAUSED', pausing: false, reason: 'a look' });
});

test('a pause whose deadline passes opens admission again', async () => {
  const { instance, free } = await instanceIn('BUSY');
  assert.equal(await outcome(() => instance.pause(callerFor(20), 'not for long')), 'AGENT_TIMEOUT');
  assert.equal(instance.status().pausing, false);
  const step = instance.admit(self());
  free();
  step.end(false);
  assert.equal(instance.status().state, 'READY');
});

test('a pause goes on while another caller waits for it', async () => {
  const { instance, free } = await instanceIn('BUSY');
  const patient = outcome(() => instance.pause(self(), 'first'));
  assert.equal(await outcome(() => instance.pause(callerFor(20), 'second')), 'AGENT_TIMEOUT');
  assert.equal(instance.status().pausing, true);
  free();
  assert.equal(await patient, 'OK');
});

test('a resume takes a waiting pause back', async () => {
  const { instance, free } = await instanceIn('BUSY');
  const pause = outcome(() => instance.pause(self(), 'test'));
  instance.resume(self(), 'seen enough');
  assert.equal(await pause, 'AGENT_STATE');
  free();
  assert.equal(instance.status().state, 'READY');
});
