// The agent and the hooks that the conformance kit asks for; conformance.proto says what they do.

import { setTimeout as sleep } from 'node:timers/promises';
import type { Agent } from './agent.js';
import { parseDuration } from './durations.js';
import { failure } from './errors.js';
import type { Hook } from './hook.js';
import { textOf } from './messages.js';
import { ownership } from './ownership.js';

/** An agent that does what the user says. */
export function testAgent(capacity: number): Agent {
  return {
    name: 'conformance',
    version: '1',
    description: 'Does what the conformance kit says.',
    capacity,
    async run({ question, remembered, call, say, emit, signal }) {
      const [, verb, rest = ''] = /^(\S+)(?: (.*))?$/s.exec(question) ?? [];
      switch (verb) {
        case 'say':
          await say(rest);
          return rest;
        case 'count': {
          if (!/^\d+$/.test(rest)) break;
          let all = '';
          for (let n = 1; n <= Number(rest) && !signal.aborted; n++) {
            await say(String(n));
            all += n;
          }
          return all;
        }
        case 'sleep': {
          const time = parseDuration(rest);
          if (time === undefined) break;
          await sleep(time, undefined, { signal });
          return `slept ${rest}`;
        }
        case 'fail':
          throw failure('AGENT_LOGIC', 'agent.Run', 'the agent failed, as requested');
        case 'panic':
          throw new Error('thrown, as requested');
        case 'own':
          return ownership(rest).owns ? 'owns' : 'does not own';
        case 'look':
          return call('look', { word: rest }, async () => `found ${rest}`);
        case 'emit': {
          const [, name, data] = /^(\S+) (.*)$/s.exec(rest) ?? [];
          if (name === undefined || data === undefined) break;
          await emit(name, JSON.parse(data));
          return name;
        }
        case 'recall': {
          const results = remembered.filter((m) => m.role === 'ROLE_TOOL').map(textOf);
          return results.join(', ') || 'nothing';
        }
      }
      return question;
    },
  };
}

/** A hook with the requested behavior. */
export function testHook(behavior: string): Hook {
  let calls = 0;
  return async (signal) => {
    calls++;
    switch (behavior) {
      case 'HOOK_BEHAVIOR_FAIL':
        throw failure('AGENT_LOGIC', 'agent.hook', 'the hook failed, as requested');
      case 'HOOK_BEHAVIOR_PANIC':
        throw new Error('thrown, as requested');
      case 'HOOK_BEHAVIOR_HANG':
        return new Promise<never>(() => {});
      case 'HOOK_BEHAVIOR_SLOW':
        return sleep(300, undefined, { signal });
      case 'HOOK_BEHAVIOR_FAIL_ONCE':
        if (calls <= 1) throw failure('AGENT_LOGIC', 'agent.hook', 'the hook failed the first time, as requested');
        return;
      case 'HOOK_BEHAVIOR_FAIL_TWICE':
        if (calls <= 2) throw failure('AGENT_LOGIC', 'agent.hook', 'the hook failed the first two times, as requested');
    }
  };
}
