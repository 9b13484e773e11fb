// The end of an instance: it never fails, and it is there at most one second after the deadline.

import type { Admission } from './admission.js';
import { Deadline, run, type Hook } from './hook.js';
import type { Machine } from './machine.js';
import type { Startup } from './startup.js';

export interface ShutdownConfig {
  /** Takes the instance out of discovery. It begins first, so that nothing new is routed here. */
  leave: Hook;
  /** Frees what the start took, once no step runs any more. */
  stop: Hook;
}

// When what is cancelled must have ended, in milliseconds after the deadline of the drain.
const leaveEnd = 400;
const stepsEnd = 500;
const stopEnd = 900;

export class Shutdown {
  #running: Promise<string[]> | undefined;
  #deadline = new Deadline(0);

  constructor(
    private readonly machine: Machine,
    private readonly admission: Admission,
    private readonly startup: Startup,
    private readonly config: ShutdownConfig,
  ) {}

  /** Ends the instance and says what went wrong on the way. Callers join; the deadline may only shrink. */
  shutdown(drain: number, reason: string, traceId: string): Promise<string[]> {
    if (this.#running) {
      if (!this.machine.is('TERMINATED')) this.#deadline.shrink(drain);
      return this.#running;
    }
    this.#deadline.dispose();
    this.#deadline = new Deadline(drain);
    this.admission.close();
    this.machine.status.draining = this.machine.status.inFlight > 0;
    this.machine.to('SHUTTING_DOWN', reason, traceId);
    this.#running = this.#end(reason, traceId);
    return this.#running;
  }

  async #end(reason: string, traceId: string): Promise<string[]> {
    const began = performance.now();
    const errors: string[] = [];
    const part = async (name: string, work: Promise<void>) => {
      await work.catch((err: unknown) => errors.push(`${name}: ${String(err instanceof Error ? err.message : err).replaceAll('\n', ' ')}`));
    };
    if (this.startup.begun) {
      const leaving = part('leave', run(this.config.leave, this.#deadline.signal(leaveEnd), 0));
      await Promise.all([leaving, this.startup.cancel(), part('drain', this.#drain())]);
      await part('stop', run(this.config.stop, this.#deadline.signal(stopEnd), 100));
    }
    this.#deadline.dispose();
    this.machine.metrics.shutdownTime = performance.now() - began;
    this.machine.to('TERMINATED', reason, traceId);
    return errors;
  }

  async #drain(): Promise<void> {
    const { status } = this.machine;
    const idle = () => status.inFlight === 0;
    const drained = await this.machine.until(idle, this.#deadline.signal(0));
    status.draining = false;
    if (drained) return;
    const cancelled = this.admission.cancelAll();
    if (await this.machine.until(idle, this.#deadline.signal(stepsEnd))) {
      throw new Error(`steps cancelled at the deadline: ${cancelled}`);
    }
    throw new Error(`steps cancelled at the deadline: ${cancelled}; of these given up, as they did not end: ${status.inFlight}`);
  }
}
