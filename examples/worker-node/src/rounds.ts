// The tool rounds of an agent: those that it remembers from earlier turns, and those of the running step.

import { randomUUID } from 'node:crypto';
import type { Memory } from './memory.js';
import type { ExecuteStepRequest, Message } from './messages.js';

/** Returns the messages of the rounds that the agent of a step remembers, oldest first. */
export async function remembered(memory: Memory | undefined, request: ExecuteStepRequest, deadline: number, signal: AbortSignal): Promise<Message[]> {
  const first = request.history[0];
  if (!memory || !request.hasRounds || !first) return [];
  const { sessionId, agent } = request;
  const steps = await memory.loadRounds({ sessionId, agent, from: first.sequence ?? 0 }, request.credential, deadline, signal);
  // Of the same turn only steps whose results the step was given: another attempt sees the same.
  const seen = steps.filter((s) => s.turn < request.turn || s.turn === request.turn && request.prior.some((p) => p.step === s.step));
  return seen.flatMap((s) => s.messages);
}

/** The rounds of a running step. */
export class Rounds {
  readonly messages: Message[] = [];

  /** Runs a tool, and keeps the call and its result. A tool that fails leaves no round. */
  async call(tool: string, parameters: object, run: () => Promise<string>): Promise<string> {
    const id = randomUUID();
    const text = await run();
    this.messages.push(
      { role: 'ROLE_ASSISTANT', parts: [], toolCalls: [{ id, name: tool, arguments: JSON.stringify(parameters) }] },
      { role: 'ROLE_TOOL', parts: [{ text }], toolCallId: id },
    );
    return text;
  }
}
