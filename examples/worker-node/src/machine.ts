// The state of an instance, its allowed transitions, and the callers that wait for them.

import { failure } from './errors.js';
import type { Lease, Metrics, State, Status, Transition } from './state.js';

/** The number of transitions that are stored. */
export const historyLimit = 1024;

const allowed: Record<State, State[]> = {
  UNINITIALIZED: ['INITIALIZING', 'SHUTTING_DOWN'],
  INITIALIZING: ['READY', 'SHUTTING_DOWN'],
  READY: ['BUSY', 'PAUSED', 'SHUTTING_DOWN'],
  BUSY: ['READY', 'PAUSED', 'SHUTTING_DOWN'],
  PAUSED: ['READY', 'SHUTTING_DOWN'],
  SHUTTING_DOWN: ['TERMINATED'],
  TERMINATED: [],
};

/** Machine is one instance's state. JavaScript runs one thing at a time, so what happens
 *  between two awaits is atomic: a check and its transition need no lock. */
export class Machine {
  readonly status: Status;
  readonly metrics: Metrics = {
    startupTime: 0, shutdownTime: 0, activeTime: 0, totalRequests: 0, failedRequests: 0, stateTransitions: 0,
  };
  #busySince = 0;
  #history: Transition[] = [];
  #waiting = new Set<() => void>();

  constructor(capacity: number) {
    this.status = {
      state: 'UNINITIALIZED', version: 0, inFlight: 0, capacity, pausing: false,
      since: new Date(), reason: '', lease: 'UNSPECIFIED', draining: false,
    };
  }

  /** A snapshot of the status. */
  snapshot(): Status {
    return { ...this.status };
  }

  /** A snapshot of the counters. */
  counters(): Metrics {
    const running = this.status.state === 'BUSY' ? performance.now() - this.#busySince : 0;
    return { ...this.metrics, activeTime: this.metrics.activeTime + running };
  }

  is(...states: State[]): boolean {
    return states.includes(this.status.state);
  }

  /** Makes a transition. The verb has checked that it is allowed; this asserts it. */
  to(state: State, reason: string, traceId: string): void {
    const s = this.status;
    if (!allowed[s.state].includes(state)) throw new Error(`lifecycle: ${s.state} does not lead to ${state}`);
    if (state === 'BUSY') this.#busySince = performance.now();
    if (s.state === 'BUSY') this.metrics.activeTime += performance.now() - this.#busySince;
    const transition = { from: s.state, to: state, version: s.version + 1, time: new Date(), reason, traceId };
    Object.assign(s, { state, version: transition.version, since: transition.time, reason });
    this.metrics.stateTransitions++;
    this.#history.push(transition);
    if (this.#history.length > historyLimit) this.#history.shift();
    this.notify();
  }

  setLease(lease: Lease): void {
    if (this.status.lease === lease) return;
    this.status.lease = lease;
    this.notify();
  }

  /** Returns the transitions after a version. Fails if the version is in the future or no longer stored. */
  after(version: number): Transition[] {
    const { version: now } = this.status;
    if (version > now) {
      throw failure('USER_INVALID_INPUT', 'lifecycle.Watch', `after_version: ${version} is above the current state_version ${now}; give one that was seen, or 0`);
    }
    if (version < now - this.#history.length) {
      throw failure('RESOURCE_QUOTA', 'lifecycle.Watch', `the transitions after ${version} are forgotten: the instance remembers its latest ${historyLimit}; ask for those after ${now - this.#history.length}, or later`);
    }
    return version === now ? [] : this.#history.slice(version - now);
  }

  /** Wakes all waiters. */
  notify(): void {
    const woken = [...this.#waiting];
    this.#waiting.clear();
    for (const wake of woken) wake();
  }

  /** Returns at the next change, or when the signal ends. */
  async changed(signal?: AbortSignal): Promise<void> {
    if (signal?.aborted) return;
    let wake = () => {};
    await new Promise<void>((resolve) => {
      wake = resolve;
      this.#waiting.add(wake);
      signal?.addEventListener('abort', wake, { once: true });
    });
    this.#waiting.delete(wake);
    signal?.removeEventListener('abort', wake);
  }

  /** Waits until the condition holds; false when the signal ended first. */
  async until(reached: () => boolean, signal: AbortSignal): Promise<boolean> {
    while (!reached()) {
      if (signal.aborted) return false;
      await this.changed(signal);
    }
    return true;
  }
}
