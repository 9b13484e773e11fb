// The registration of the instance in etcd: a key under a lease, which is renewed, and created again when it is lost.

import { randomInt } from 'node:crypto';
import { Etcd, LeaseGone, type Stored } from './etcd.js';
import { log } from './log.js';
import type { Lease, State } from './state.js';

const leaseSeconds = 15;
const beat = 5000; // milliseconds between renewals of the lease

/** The record: troupe.v1.Instance as protobuf's JSON, without the state. */
export interface InstanceRecord {
  instanceId: string;
  agent: string;
  address: string;
  version: string;
  description: string;
  capacity: number;
  started: string;
}

export class Registration {
  readonly #key: string;
  readonly #noted: (lease: Lease) => void;
  #state: State = 'UNINITIALIZED'; // the state to register
  #registered: State | undefined; // the registered state
  #lease = '0';
  #created = '0'; // create revision of the key; 0 until it is ours
  #wake: () => void = () => {};
  #asked = false;
  #closed = false;
  #kept: Promise<void> | undefined;

  /** noted receives each change of the lease state. */
  constructor(private readonly etcd: Etcd, private readonly record: InstanceRecord, noted: (lease: Lease) => void) {
    this.#key = `/troupe/v1/reg/${record.agent}/${record.instanceId}`;
    this.#noted = noted;
  }

  /** Registers and renews until close. It retries while etcd is away. */
  open(): void {
    this.#kept = this.#keep();
  }

  /** Registers another state as soon as possible. BUSY is registered as READY, because it changes too often. */
  setState(state: State): void {
    this.#state = state === 'BUSY' ? 'READY' : state;
    if (this.#state !== this.#registered) this.#ask();
  }

  /** Removes the instance from the registry for good. */
  async close(): Promise<void> {
    this.#closed = true;
    this.#ask();
    await this.#kept;
    const lease = this.#lease;
    this.#lease = '0';
    if (lease !== '0') await this.etcd.revoke(lease); // otherwise it expires by itself
  }

  async #keep(): Promise<void> {
    for (let failures = 0; !this.#closed; ) {
      try {
        if (this.#lease !== '0') await this.#look();
        await this.#enrol();
        this.#noted('OK');
        failures = 0;
        await this.#pause(beat);
      } catch (err) {
        failures++;
        if (err instanceof LeaseGone) {
          this.#lost('the lease is gone; registering anew', '0');
        } else {
          if (this.#created !== '0') this.#noted('UNKNOWN'); // the worker continues
          if (Number.isInteger(Math.log2(failures))) log.warn('the registry does not keep the instance at the moment; still trying', { tries: failures, error: err });
        }
        await this.#pause(Math.min(3000, 100 * 2 ** Math.min(failures, 5)) * (0.5 + randomInt(500) / 1000));
      }
    }
  }

  /** Makes sure that there is a lease, and the key under it with the latest state. It may be repeated after any error. */
  async #enrol(): Promise<void> {
    if (this.#lease === '0') this.#lease = await this.etcd.grant(leaseSeconds);
    while (this.#registered !== this.#state && !this.#closed) {
      const state = this.#state;
      const value = JSON.stringify({ ...this.record, state: `INSTANCE_STATE_${state}` });
      const { done, stored } = await this.etcd.put({ key: this.#key, createRevision: this.#created, value, lease: this.#lease });
      if (done) {
        this.#registered = state;
        this.#created = stored!.createRevision;
        log.info('registered', { key: this.#key, state, incarnation: this.#created });
      } else {
        this.#adopt(stored);
      }
    }
  }

  /** Handles a key that is not as expected. */
  #adopt(stored: Stored | undefined): void {
    if (!stored) return this.#lost('the registration was deleted; registering anew');
    if (stored.lease !== this.#lease) {
      if (this.#created !== '0') this.#lost('another instance took the registration');
      throw new Error(`instance ${this.record.instanceId} of agent ${this.record.agent} is registered already: end it, give this one another id, or wait for its lease to run out`);
    }
    this.#created = stored.createRevision; // an earlier try succeeded, and its answer was lost
  }

  /** Renews the lease, and checks that the key is unchanged. */
  async #look(): Promise<void> {
    if (await this.etcd.keepAlive(this.#lease) === 0) throw new LeaseGone('etcd has ended the lease');
    if (this.#created === '0') return; // it waits until the key is free
    const stored = await this.etcd.get(this.#key);
    if (stored?.createRevision !== this.#created) this.#lost('the registration is gone; registering anew');
  }

  #lost(why: string, lease = this.#lease): void {
    if (this.#created !== '0') {
      log.warn(why, { key: this.#key });
      this.#noted('EXPIRED');
    }
    this.#registered = undefined;
    this.#created = '0';
    this.#lease = lease;
  }

  #ask(): void {
    this.#asked = true;
    this.#wake();
  }

  /** Waits for the given time, or until a change is requested. */
  async #pause(ms: number): Promise<void> {
    if (!this.#asked) {
      await new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, ms);
        this.#wake = () => {
          clearTimeout(timer);
          resolve();
        };
      });
    }
    this.#asked = false;
  }
}
