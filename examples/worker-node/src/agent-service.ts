// AgentService admits a step, runs it, commits it, and answers with exactly one result.

import type { UntypedServiceImplementation } from '@grpc/grpc-js';
import type { Agent } from './agent.js';
import { streaming, type Answers } from './calls.js';
import { failure, Failure, toDetail } from './errors.js';
import type { Lifecycle } from './lifecycle.js';
import { log } from './log.js';
import type { Memory } from './memory.js';
import { textOf, timestamp, type ExecuteStepRequest, type ExecuteStepResponse, type Message, type StepResult } from './messages.js';
import { remembered, Rounds } from './rounds.js';
import { checkStep } from './validation.js';

const op = 'agent.ExecuteStep';

/** The time between heartbeats of a running step, in milliseconds; the contract requires an item every 2 seconds. */
const heartbeatPeriod = 1000;

/** Returns the service for an agent. Without a memory service nothing is committed, which lifecycle tests use. */
export function agentService(agent: Agent, lifecycle: Lifecycle, memory: Memory | undefined): UntypedServiceImplementation {
  return {
    ExecuteStep: streaming<ExecuteStepRequest, ExecuteStepResponse>(async (request, answers, caller) => {
      checkStep(request);
      if (request.agent !== agent.name) {
        throw failure('AGENT_STATE', op, `agent: this worker hosts "${agent.name}", not "${request.agent}"`);
      }
      const admitted = lifecycle.admit({ ...caller, traceId: request.traceId });
      let failed = true;
      try {
        answers.open(); // tells the caller that the step is admitted
        const result = await beating(answers, () => step(agent, memory, request, answers, admitted.signal, caller.deadline));
        failed = result.failure !== undefined;
        await answers.send({ result }).catch(() => {}); // the caller is gone
      } finally {
        admitted.end(failed);
      }
    }),
  };
}

/** Sends heartbeats while the work runs. */
async function beating<T>(answers: Answers<ExecuteStepResponse>, work: () => Promise<T>): Promise<T> {
  let sending = false; // a caller that does not read gets at most one
  const beat = async () => {
    if (sending) return;
    sending = true;
    await answers.send({ heartbeat: {} }).catch(() => {}); // the caller is gone; the signal of the step says so
    sending = false;
  };
  const timer = setInterval(() => void beat(), heartbeatPeriod);
  try {
    return await work();
  } finally {
    clearInterval(timer);
  }
}

/** Runs and commits a step. It always returns a result; errors become failed results. */
async function step(agent: Agent, memory: Memory | undefined, request: ExecuteStepRequest, answers: Answers<ExecuteStepResponse>, signal: AbortSignal, deadline: number): Promise<StepResult> {
  const result: StepResult = { step: request.step, agent: agent.name };
  try {
    const rounds = new Rounds();
    const text = await ask(agent, request, rounds, await remembered(memory, request, deadline, signal), answers, signal);
    signal.throwIfAborted(); // no commit begins after the step was cancelled
    const done = { ...result, text };
    return { ...done, sequence: await commit(memory, request, done, rounds, deadline, signal) };
  } catch (err) {
    const cause = signal.aborted && !(err instanceof Failure) ? signal.reason : err;
    const why = cause instanceof Failure ? cause : failure('AGENT_LOGIC', op, "the agent failed; the worker's log has the cause", cause);
    log.warn('step failed', { trace: request.traceId, step: request.step, mode: why.mode, error: why });
    return { ...result, failure: toDetail(why) };
  }
}

async function ask(agent: Agent, request: ExecuteStepRequest, rounds: Rounds, remembered: Message[], answers: Answers<ExecuteStepResponse>, signal: AbortSignal): Promise<string> {
  const said = request.history.findLast((m) => m.role === 'ROLE_USER');
  return agent.run({
    question: said ? textOf(said) : '',
    remembered,
    call: (tool, parameters, run) => rounds.call(tool, parameters, run),
    signal,
    say: (text) => answers.send({ event: { time: timestamp(new Date()), textDelta: { text } } }),
    emit: (name, data) => answers.send({ event: { time: timestamp(new Date()), custom: { name, data: JSON.stringify(data) } } }),
  });
}

async function commit(memory: Memory | undefined, request: ExecuteStepRequest, result: StepResult, rounds: Rounds, deadline: number, signal: AbortSignal): Promise<string | number> {
  // A routing step adds no message to the session.
  const messages: Message[] = request.routes.length > 0 ? [] : [{ role: 'ROLE_ASSISTANT', author: result.agent, parts: [{ text: result.text ?? '' }] }];
  if (!memory) return Number(request.baseSequence) + messages.length;
  return memory.commit({
    sessionId: request.sessionId,
    turnId: request.turnId,
    epoch: request.epoch,
    baseSequence: request.baseSequence,
    messages,
    rounds: rounds.messages.map((message) => ({ message })),
    result,
    outcome: request.last ? 'TURN_OUTCOME_COMPLETED' : 'TURN_OUTCOME_UNSPECIFIED',
  }, request.credential, deadline, signal);
}
