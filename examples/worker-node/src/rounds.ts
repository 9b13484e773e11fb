// The tool rounds of an agent: those that it remembers from earlier turns, and those of the running step.

import { randomUUID } from 'node:crypto';
import type { Memory } from './memory.js';
import type { ExecuteStepRequest, Message, StepRounds } from './messages.js';

/** Returns the messages of the rounds that the agent of a step remembers, oldest first. */
export async function remembered(memory: Memory | undefined, request: ExecuteStepRequest, deadline: number, signal: AbortSignal): Promise<Message[]> {
  const first = request.history[0];
  if (!memory || !request.hasRounds || !first) return [];
  const { sessionId, agent } = request;
  const steps = await memory.loadRounds({ sessionId, agent, from: first.sequence ?? 0 }, request.credential, deadline, signal);
  return steps.filter((s) => isVisible(s, steps, request)).flatMap((s) => s.messages);
}

/**
 * Reports whether a step may see rounds. Of those that follow the user's last message, these are the ones of steps whose
 * results it was given, from the latest turn if a step ran again: another attempt sees the same.
 */
function isVisible(rounds: StepRounds, all: StepRounds[], request: ExecuteStepRequest): boolean {
  const said = request.history.findLast((m) => m.role === 'ROLE_USER');
  const isOfTurn = (s: StepRounds) => s.turn === request.turn || said !== undefined && BigInt(s.after) >= BigInt(said.sequence ?? 0);
  if (rounds.turn > request.turn) return false;
  if (!isOfTurn(rounds)) return true;
  const ranAgain = all.some((s) => s.step === rounds.step && s.turn > rounds.turn && s.turn <= request.turn);
  return !ranAgain && request.prior.some((p) => p.step === rounds.step);
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
