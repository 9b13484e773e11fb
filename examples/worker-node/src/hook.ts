// Runs hooks of an agent within a time limit. What they throw becomes an error; a hook that never returns is abandoned.

/** A hook of the agent. It should return when the signal aborts. */
export type Hook = (signal: AbortSignal) => Promise<void>;

/** Runs a hook, and abandons it the given number of milliseconds after the signal aborts. */
export async function run(hook: Hook, signal: AbortSignal, grace: number): Promise<void> {
  let timer: NodeJS.Timeout | undefined;
  let arm = () => {};
  const givenUp = new Promise<never>((_, reject) => {
    arm = () => {
      timer = setTimeout(() => reject(new Error('it did not return in time and was given up', { cause: signal.reason })), grace);
    };
    if (signal.aborted) arm();
    else signal.addEventListener('abort', arm, { once: true });
  });
  try {
    await Promise.race([(async () => hook(signal))(), givenUp]);
  } finally {
    clearTimeout(timer);
    signal.removeEventListener('abort', arm);
  }
}

/** Deadline is a point in time that can only move earlier, with signals that abort relative to it. */
export class Deadline {
  #at: number;
  #signals: { controller: AbortController; offset: number; timer?: NodeJS.Timeout }[] = [];

  constructor(ms: number) {
    this.#at = performance.now() + ms;
  }

  /** Moves the deadline to so many milliseconds from now, unless it is earlier already. */
  shrink(ms: number): void {
    this.#at = Math.min(this.#at, performance.now() + ms);
    for (const s of this.#signals) this.#arm(s);
  }

  /** Returns a signal that aborts the given number of milliseconds after the deadline. */
  signal(offset: number): AbortSignal {
    const s = { controller: new AbortController(), offset };
    this.#signals.push(s);
    this.#arm(s);
    return s.controller.signal;
  }

  #arm(s: { controller: AbortController; offset: number; timer?: NodeJS.Timeout }): void {
    clearTimeout(s.timer);
    s.timer = setTimeout(() => s.controller.abort(new Error('the time is up')), Math.max(0, this.#at + s.offset - performance.now()));
  }

  /** Frees the timers. */
  dispose(): void {
    for (const s of this.#signals) clearTimeout(s.timer);
  }
}
