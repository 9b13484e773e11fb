// Admission of steps: accepts steps up to the capacity, and none while a pause is in effect.

import { failure, Failure } from './errors.js';
import type { Machine } from './machine.js';
import type { Caller, State } from './state.js';

/** Admitted is a running step. Its signal aborts when the caller or a shutdown cancels the step. */
export interface Admitted {
  signal: AbortSignal;
  /** Ends the step. Only the first call has an effect. */
  end(failed: boolean): void;
}

/** Returns the error for a lifecycle call that the current state does not allow. */
export function wrongState(verb: string, actual: State, ...required: State[]): Failure {
  return new Failure('AGENT_STATE', `lifecycle.${verb}`, `the instance is ${actual}; ${verb} needs ${required.join(' or ')}`, {
    actual_state: actual.toLowerCase(),
    required_state: required.join(',').toLowerCase(),
  });
}

export class Admission {
  #steps = new Set<AbortController>();
  #pauses = new Set<Caller>(); // pause calls that wait for the running steps to end
  #pause = { reason: '', traceId: '' };

  constructor(private readonly machine: Machine) {}

  /** Admits a step, or rejects it without any effect. */
  admit(caller: Caller): Admitted {
    const s = this.machine.status;
    const op = 'lifecycle.Admit';
    if (this.machine.is('UNINITIALIZED', 'INITIALIZING')) throw wrongState('ExecuteStep', s.state, 'READY', 'BUSY');
    if (this.machine.is('SHUTTING_DOWN', 'TERMINATED')) throw failure('INSTANCE_DRAINING', op, 'the instance is shutting down; another may take the step');
    if (s.state === 'PAUSED' || s.pausing) throw failure('INSTANCE_PAUSED', op, 'the instance is paused; another may take the step');
    if (s.lease === 'EXPIRED') throw failure('INSTANCE_PAUSED', op, 'the instance has lost its registration and registers anew; another may take the step');
    if (s.inFlight >= s.capacity) throw failure('INSTANCE_FULL', op, `the instance runs ${s.capacity} steps, as many as it may; another may take the step`);

    const step = new AbortController();
    const cancel = () => step.abort(caller.signal.reason);
    if (caller.signal.aborted) cancel();
    caller.signal.addEventListener('abort', cancel, { once: true });
    this.#steps.add(step);
    s.inFlight++;
    this.machine.metrics.totalRequests++;
    if (s.state === 'READY') this.machine.to('BUSY', '', caller.traceId);
    return {
      signal: step.signal,
      end: (failed) => {
        if (!this.#steps.delete(step)) return;
        caller.signal.removeEventListener('abort', cancel);
        this.#left(failed, caller.traceId);
      },
    };
  }

  /** Changes the state only if it is BUSY: a step that ends during a shutdown must not make the instance READY. */
  #left(failed: boolean, traceId: string): void {
    const s = this.machine.status;
    s.inFlight--;
    if (failed) this.machine.metrics.failedRequests++;
    if (s.inFlight > 0 || s.state !== 'BUSY') {
      this.machine.notify();
    } else if (s.pausing) {
      s.pausing = false;
      this.machine.to('PAUSED', this.#pause.reason, this.#pause.traceId);
    } else {
      this.machine.to('READY', '', traceId);
    }
  }

  /** Closes admission and returns once no step runs. It opens again when every waiting caller has given up. */
  async pause(caller: Caller, reason: string): Promise<void> {
    const s = this.machine.status;
    if (this.machine.is('UNINITIALIZED', 'INITIALIZING', 'PAUSED')) return;
    if (this.machine.is('SHUTTING_DOWN', 'TERMINATED')) throw wrongState('Pause', s.state, 'READY', 'BUSY');
    if (s.state === 'READY') return this.machine.to('PAUSED', reason, caller.traceId);

    if (!s.pausing) {
      this.#pause = { reason, traceId: caller.traceId };
      Object.assign(s, { pausing: true, reason });
      this.machine.notify();
    }
    this.#pauses.add(caller);
    const from = s.version;
    const paused = () => this.machine.after(from).some((t) => t.to === 'PAUSED');
    const settled = await this.machine.until(() => !s.pausing, caller.signal);
    this.#pauses.delete(caller);
    if (!settled) {
      if (this.#pauses.size === 0) this.#reopen('');
      throw failure('AGENT_TIMEOUT', 'lifecycle.Pause', "running steps did not end within the caller's deadline; admission is open again");
    }
    if (paused()) return;
    if (this.machine.is('SHUTTING_DOWN', 'TERMINATED')) throw wrongState('Pause', s.state, 'READY', 'BUSY');
    throw failure('AGENT_STATE', 'lifecycle.Pause', 'a Resume took the pause back');
  }

  /** Opens admission again, even if a pause still waits. */
  resume(caller: Caller, reason: string): void {
    const s = this.machine.status;
    if (this.machine.is('SHUTTING_DOWN', 'TERMINATED')) throw wrongState('Resume', s.state, 'PAUSED');
    if (s.state === 'PAUSED') this.machine.to('READY', reason, caller.traceId);
    else if (s.pausing) this.#reopen(reason);
  }

  #reopen(reason: string): void {
    Object.assign(this.machine.status, { pausing: false, reason });
    this.machine.notify();
  }

  /** Closes admission for good, and ends waiting pauses. */
  close(): void {
    this.machine.status.pausing = false;
  }

  /** Cancels all running steps and returns their number. */
  cancelAll(): number {
    const running = [...this.#steps]; // a step may end as soon as it is cancelled
    for (const step of running) {
      step.abort(failure('INSTANCE_DRAINING', 'lifecycle.Shutdown', 'the worker stopped before the step ended; nothing of it was committed'));
    }
    return running.length;
  }
}
