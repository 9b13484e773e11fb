// Every state with every verb: the table of docs/lifecycle.md.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Lifecycle } from '../src/lifecycle.js';
import { self, type State } from '../src/state.js';
import { callerFor, instanceIn, outcome } from './rig.js';

const verbs: Record<string, (i: Lifecycle) => unknown> = {
  startup: (i) => i.startup(callerFor(2000)),
  step: (i) => i.admit(self()),
  pause: (i) => i.pause(callerFor(2000), 'test'),
  resume: (i) => i.resume(self(), 'test'),
  shutdown: (i) => i.shutdown(0, 'test'),
};

// What the verb leads to, and the state afterwards.
const table: Record<State, Record<string, [outcome: string, state: State]>> = {
  UNINITIALIZED: {
    startup: ['OK', 'READY'], step: ['AGENT_STATE', 'UNINITIALIZED'], pause: ['OK', 'UNINITIALIZED'],
    resume: ['OK', 'UNINITIALIZED'], shutdown: ['OK', 'TERMINATED'],
  },
  INITIALIZING: {
    startup: ['OK', 'READY'], step: ['AGENT_STATE', 'INITIALIZING'], pause: ['OK', 'INITIALIZING'],
    resume: ['OK', 'INITIALIZING'], shutdown: ['OK', 'TERMINATED'],
  },
  READY: {
    startup: ['OK', 'READY'], step: ['OK', 'BUSY'], pause: ['OK', 'PAUSED'],
    resume: ['OK', 'READY'], shutdown: ['OK', 'TERMINATED'],
  },
  BUSY: {
    startup: ['OK', 'BUSY'], step: ['OK', 'BUSY'], pause: ['OK', 'PAUSED'],
    resume: ['OK', 'BUSY'], shutdown: ['OK', 'TERMINATED'],
  },
  PAUSED: {
    startup: ['OK', 'PAUSED'], step: ['INSTANCE_PAUSED', 'PAUSED'], pause: ['OK', 'PAUSED'],
    resume: ['OK', 'READY'], shutdown: ['OK', 'TERMINATED'],
  },
  SHUTTING_DOWN: {
    startup: ['AGENT_STATE', 'SHUTTING_DOWN'], step: ['INSTANCE_DRAINING', 'SHUTTING_DOWN'], pause: ['AGENT_STATE', 'SHUTTING_DOWN'],
    resume: ['AGENT_STATE', 'SHUTTING_DOWN'], shutdown: ['OK', 'TERMINATED'],
  },
  TERMINATED: {
    startup: ['AGENT_STATE', 'TERMINATED'], step: ['INSTANCE_DRAINING', 'TERMINATED'], pause: ['AGENT_STATE', 'TERMINATED'],
    resume: ['AGENT_STATE', 'TERMINATED'], shutdown: ['OK', 'TERMINATED'],
  },
};

// Verbs that wait until the instance is let go.
const waits = ['startup in INITIALIZING', 'pause in BUSY'];

for (const [state, row] of Object.entries(table)) {
  for (const [verb, [wanted, after]] of Object.entries(row)) {
    test(`${verb} in ${state}: ${wanted}, then ${after}`, async () => {
      const { instance, free } = await instanceIn(state as State);
      const before = instance.status();
      assert.equal(before.state, state);
      const done = outcome(() => verbs[verb]!(instance));
      if (waits.includes(`${verb} in ${state}`)) free();
      assert.equal(await done, wanted);
      const now = instance.status();
      assert.equal(now.state, after);
      if (after === state && verb !== 'step') assert.deepEqual(now, before, 'a verb that changes nothing');
      free();
      await instance.shutdown(0, 'the test has ended');
    });
  }
}
