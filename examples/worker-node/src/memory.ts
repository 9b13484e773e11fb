// The part of the memory service that a worker needs: committing the messages of a step.

import { setTimeout as sleep } from 'node:timers/promises';
import * as grpc from '@grpc/grpc-js';
import { invoke } from './calls.js';
import { asFailure } from './errors.js';
import type { CommitStepRequest } from './messages.js';
import { service } from './protos.js';

const tryTime = 5000; // a try that takes longer is retried
const graceTime = 10_000; // how long a commit may continue after the step was cancelled

type Commit = grpc.MethodDefinition<CommitStepRequest, { lastSequence: string }>;

export class Memory {
  readonly #client: grpc.Client;
  readonly #method = service('troupe.v1.MemoryService')['CommitStep'] as unknown as Commit;

  /** Connects when first used, and reconnects by itself. */
  constructor(address: string, credentials = grpc.credentials.createInsecure()) {
    this.#client = new grpc.Client(address, credentials, {
      'grpc.initial_reconnect_backoff_ms': 100,
      'grpc.max_reconnect_backoff_ms': 2000,
      'grpc.keepalive_time_ms': 10_000,
      'grpc.keepalive_timeout_ms': 3000,
      'grpc.enable_http_proxy': 0,
    });
  }

  /**
   * Commits, and returns the last message of the session. The same commit may be repeated, so
   * it is while the service cannot be reached or does not answer, until the step's deadline. A
   * cancelled step no longer takes it back: it may be durable already. The credential of the
   * step proves that it is this worker's; it goes to the memory service and nowhere else.
   */
  async commit(request: CommitStepRequest, credential: string, deadline: number, step: AbortSignal): Promise<string> {
    const metadata = new grpc.Metadata();
    if (credential) metadata.set('troupe-turn', credential);
    let until = deadline;
    const cancelled = () => (until = Math.min(until, Date.now() + graceTime));
    step.addEventListener('abort', cancelled, { once: true });
    try {
      for (let pause = 50; ; pause = Math.min(2000, pause * 2)) {
        try {
          return (await invoke(this.#client, this.#method, request, Math.min(until, Date.now() + tryTime), undefined, metadata)).lastSequence;
        } catch (err) {
          const again = ['SYSTEM_NETWORK', 'SYSTEM_TIMEOUT'].includes(asFailure(err).mode);
          const wait = pause * (0.5 + Math.random());
          if (!again || Date.now() + wait >= until) throw err;
          await sleep(wait);
        }
      }
    } finally {
      step.removeEventListener('abort', cancelled);
    }
  }

  close(): void {
    this.#client.close();
  }
}
