// The start of an instance: joined, bounded, and tried again as often as it may be.

import { setTimeout as sleep } from 'node:timers/promises';
import { wrongState } from './admission.js';
import { failure, Failure } from './errors.js';
import { run, type Hook } from './hook.js';
import type { Machine } from './machine.js';
import type { Caller } from './state.js';

export interface StartupConfig {
  /** Takes what the agent needs. */
  start: Hook;
  /** Frees what start took, also when that came half way. */
  stop: Hook;
  /** Bounds the start, all tries together. */
  timeout: number;
  /** How often a failed try is repeated. */
  maxRetries: number;
  /** Leaves a failed instance in INITIALIZING until a Shutdown. */
  keepFailed: boolean;
  log: (message: string, err: unknown) => void;
}

export class Startup {
  #running: Promise<void> | undefined;
  #abort = new AbortController();
  #hooks: Promise<void> = Promise.resolve();

  /** end takes a failed instance to TERMINATED. */
  constructor(private readonly machine: Machine, private readonly config: StartupConfig, private readonly end: (traceId: string) => Promise<unknown>) {}

  /** Whether there was a start: there may be something to free. */
  get begun(): boolean {
    return this.#running !== undefined;
  }

  /** Takes the instance to READY. Callers join the one start; each waits as long as it likes. */
  async startup(caller: Caller): Promise<void> {
    if (this.machine.is('SHUTTING_DOWN', 'TERMINATED')) throw wrongState('Startup', this.machine.status.state, 'UNINITIALIZED');
    if (!this.#running) {
      this.machine.to('INITIALIZING', '', caller.traceId);
      this.#running = this.#start(Math.min(this.config.timeout, caller.deadline - Date.now()), caller.traceId);
      this.#running.catch(() => {}); // each caller gets it below, and none may be left
    }
    await orGiveUp(this.#running, caller.signal);
  }

  /** Ends a start that runs; returns once its hooks have ended or were given up. */
  async cancel(): Promise<void> {
    this.#abort.abort(failure('AGENT_STATE', 'lifecycle.Startup', 'a Shutdown came before the start had ended'));
    await this.#hooks;
  }

  async #start(timeout: number, traceId: string): Promise<void> {
    const began = performance.now();
    const late = () => this.#abort.abort(failure('AGENT_TIMEOUT', 'lifecycle.Startup', 'the start did not end in time; allow it more, or see what hangs'));
    const timer = setTimeout(late, Math.max(0, timeout));
    const tries = this.#tries(this.#abort.signal);
    this.#hooks = tries.catch(() => {});
    let cause: Failure | undefined;
    try {
      await tries;
    } catch (err) {
      cause = this.#cause(err);
      this.config.log('the start failed', err);
    }
    clearTimeout(timer);
    this.machine.metrics.startupTime = performance.now() - began;

    if (!cause && this.machine.is('INITIALIZING')) return this.machine.to('READY', '', traceId);
    cause ??= this.#cause(this.#abort.signal.reason);
    if (!this.config.keepFailed && this.machine.is('INITIALIZING')) await this.end(traceId);
    throw cause;
  }

  async #tries(signal: AbortSignal): Promise<void> {
    for (let retry = 0; ; retry++) {
      try {
        return await run(this.config.start, signal, 400);
      } catch (err) {
        if (signal.aborted || retry >= this.config.maxRetries) throw err;
        this.config.log('a try to start failed', err);
        if (!(await this.#freed(signal))) throw err; // nothing may be built upon what is half freed
      }
      await sleep(Math.min(200, 25 * 2 ** retry), undefined, { signal });
    }
  }

  /** Frees what a failed try took; false when it cannot. */
  async #freed(signal: AbortSignal): Promise<boolean> {
    try {
      await run(this.config.stop, AbortSignal.any([signal, AbortSignal.timeout(1000)]), 100);
      return true;
    } catch (err) {
      this.config.log('a failed try could not be cleaned up', err);
      return false;
    }
  }

  /** The end of time and a shutdown explain more than what the hook made of them. */
  #cause(err: unknown): Failure {
    const { signal } = this.#abort;
    if (signal.aborted) return signal.reason as Failure;
    if (err instanceof Failure) return err;
    return failure('AGENT_LOGIC', 'lifecycle.Startup', "the start failed; the worker's log has the cause", err);
  }
}

/** Waits for the work as long as the signal lasts. */
async function orGiveUp(work: Promise<void>, signal: AbortSignal): Promise<void> {
  let giveUp = () => {};
  const gaveUp = new Promise<never>((_, reject) => {
    giveUp = () => reject(failure('AGENT_TIMEOUT', 'lifecycle.Startup', "the start did not end within the caller's deadline"));
    if (signal.aborted) giveUp();
    else signal.addEventListener('abort', giveUp, { once: true });
  });
  try {
    await Promise.race([work, gaveUp]);
  } finally {
    signal.removeEventListener('abort', giveUp);
  }
}
