// The lifecycle of an instance: the seven states and the transitions that lifecycle.proto defines.
//
//                  Startup            started              step begins
//  UNINITIALIZED ──────────▶ INITIALIZING ──────▶ READY ◀───────────▶ BUSY
//        │                        │               │   ▲  last step ends  │
//        │ Shutdown               │ failed,  Pause│   │Resume            │ Pause, once
//        │                        │ Shutdown      ▼   │                  │ no step runs
//        │                        │              PAUSED ◀────────────────┤
//        ▼                        ▼               │        Shutdown      │
//  TERMINATED ◀───────────── SHUTTING_DOWN ◀──────┴──────────────────────┘

import { Admission, type Admitted } from './admission.js';
import { Machine } from './machine.js';
import { Shutdown, type ShutdownConfig } from './shutdown.js';
import { Startup, type StartupConfig } from './startup.js';
import { self, type Caller, type Lease, type Metrics, type Status, type Transition } from './state.js';

/** The settings of an instance; times are in milliseconds. */
export type LifecycleConfig = Partial<StartupConfig & ShutdownConfig> & { capacity?: number };

/** One item of a watch: the first has no transition. */
export interface Watched {
  transition?: Transition;
  status: Status;
}

export class Lifecycle {
  readonly #machine: Machine;
  readonly #admission: Admission;
  readonly #startup: Startup;
  readonly #shutdown: Shutdown;

  constructor({ capacity = 16, ...config }: LifecycleConfig) {
    const none = async () => {};
    const full = { start: none, leave: none, stop: none, timeout: 30_000, maxRetries: 0, keepFailed: false, log: () => {}, ...config };
    this.#machine = new Machine(capacity);
    this.#admission = new Admission(this.#machine);
    this.#startup = new Startup(this.#machine, full, (traceId) => this.#shutdown.shutdown(0, 'startup failed', traceId));
    this.#shutdown = new Shutdown(this.#machine, this.#admission, this.#startup, full);
  }

  status(): Status {
    return this.#machine.snapshot();
  }

  metrics(): Metrics {
    return this.#machine.counters();
  }

  /** Returns once the instance is READY. Fails with the cause if the startup fails. */
  startup(caller: Caller = self()): Promise<void> {
    return this.#startup.startup(caller);
  }

  /** Returns once the instance is TERMINATED, with the errors of the shutdown. It never fails. */
  shutdown(drain: number, reason: string, caller: Caller = self()): Promise<string[]> {
    return this.#shutdown.shutdown(drain, reason, caller.traceId);
  }

  /** Returns once no step runs and the instance is PAUSED. */
  pause(caller: Caller, reason: string): Promise<void> {
    return this.#admission.pause(caller, reason);
  }

  resume(caller: Caller, reason: string): void {
    this.#admission.resume(caller, reason);
  }

  /** Admits a step. Check and transition are atomic, so at most capacity steps run. */
  admit(caller: Caller): Admitted {
    return this.#admission.admit(caller);
  }

  setLease(lease: Lease): void {
    this.#machine.setLease(lease);
  }

  /** Returns at the next change of the status, or when the signal ends. */
  changed(signal?: AbortSignal): Promise<void> {
    return this.#machine.changed(signal);
  }

  /** The status now, then every transition above the version, without a gap, until TERMINATED. */
  async *watch(after: number, signal: AbortSignal): AsyncGenerator<Watched> {
    this.#machine.after(after); // fails when there is a gap
    yield { status: this.status() };
    while (!signal.aborted) {
      for (const transition of this.#machine.after(after)) {
        yield { transition, status: this.status() };
        after = transition.version;
      }
      if (after < this.status().version) continue;
      if (this.#machine.is('TERMINATED')) return;
      await this.changed(signal);
    }
  }
}
