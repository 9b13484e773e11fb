// The interface of agents, and the example agent: it counts the words of the question.

import type { Message } from './messages.js';

/** A step as the agent sees it. */
export interface Step {
  /** The last message of the user. */
  question: string;
  /** The agent's tool calls of earlier turns and their results, oldest first. */
  remembered: Message[];
  /** Calls a tool, and keeps the call and its result for later turns. */
  call(tool: string, parameters: object, run: () => Promise<string>): Promise<string>;
  /** Streams a piece of the answer to the clients that watch. */
  say(text: string): Promise<void>;
  /** Sends an event of a kind of the agent's own to the clients that watch; it is stored with the trace. */
  emit(name: string, data: unknown): Promise<void>;
  /** Aborted when the step is cancelled; the agent should stop then. */
  signal: AbortSignal;
}

export interface Agent {
  name: string;
  version: string;
  description: string;
  capacity: number; // steps at once
  /** Returns the answer. An exception fails the step with AGENT_LOGIC. */
  run(step: Step): Promise<string>;
}

/** An agent that answers with the number of the words in the question. */
export function wordCounter(name: string): Agent {
  return {
    name,
    version: '0.1.0',
    description: 'Counts the words of what you say.',
    capacity: 16,
    async run({ question, say }) {
      const words = question.match(/[\p{L}\p{N}'’-]+/gu) ?? [];
      const answer = `That is ${words.length} ${words.length === 1 ? 'word' : 'words'}.`;
      await say(answer);
      return answer;
    },
  };
}
