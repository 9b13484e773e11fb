// The part of the memory service that a worker needs: the tool rounds of its agent, and the commit of a step.

import { setTimeout as sleep } from 'node:timers/promises';
import * as grpc from '@grpc/grpc-js';
import { invoke } from './calls.js';
import { asFailure } from './errors.js';
import type { CommitStepRequest, Int64, StepRounds } from './messages.js';
import { service } from './protos.js';

const tryTime = 5000; // a try that takes longer is retried
const graceTime = 10_000; // how long a commit may continue after the step was cancelled

interface LoadRoundsRequest { sessionId: string; agent: string; from: Int64 }

type Commit = grpc.MethodDefinition<CommitStepRequest, { lastSequence: string }>;
type LoadRounds = grpc.MethodDefinition<LoadRoundsRequest, { steps: StepRounds[] }>;

const methods = service('troupe.v1.MemoryService');

export class Memory {
  readonly #client: grpc.Client;

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

  /** Returns the rounds that the steps of an agent committed, in the order of the session. */
  async loadRounds(request: LoadRoundsRequest, credential: string, deadline: number, step: AbortSignal): Promise<StepRounds[]> {
    return (await this.#call(methods['LoadRounds'] as unknown as LoadRounds, request, credential, () => step.aborted ? 0 : deadline)).steps;
  }

  /**
   * Commits, and returns the last message of the session. A cancelled step no longer takes a
   * commit back: it may be durable already.
   */
  async commit(request: CommitStepRequest, credential: string, deadline: number, step: AbortSignal): Promise<string> {
    let until = deadline;
    const cancelled = () => (until = Math.min(until, Date.now() + graceTime));
    step.addEventListener('abort', cancelled, { once: true });
    try {
      return (await this.#call(methods['CommitStep'] as unknown as Commit, request, credential, () => until)).lastSequence;
    } finally {
      step.removeEventListener('abort', cancelled);
    }
  }

  /**
   * Calls a method, again and again while the service cannot be reached or does not answer, until a
   * time that may change meanwhile. The credential of the step proves that the call is this worker's;
   * it goes to the memory service and nowhere else.
   */
  async #call<Req, Res>(method: grpc.MethodDefinition<Req, Res>, request: Req, credential: string, until: () => number): Promise<Res> {
    const metadata = new grpc.Metadata();
    if (credential) metadata.set('troupe-turn', credential);
    for (let pause = 50; ; pause = Math.min(2000, pause * 2)) {
      try {
        return await invoke(this.#client, method, request, Math.min(until(), Date.now() + tryTime), undefined, metadata);
      } catch (err) {
        const again = ['SYSTEM_NETWORK', 'SYSTEM_TIMEOUT'].includes(asFailure(err).mode);
        const wait = pause * (0.5 + Math.random());
        if (!again || Date.now() + wait >= until()) throw err;
        await sleep(wait);
      }
    }
  }

  close(): void {
    this.#client.close();
  }
}
