// The place of the instance in etcd: a key under a lease, made if it is not there, kept, and made again when it is lost.

import { randomInt } from 'node:crypto';
import { Etcd, LeaseGone, type Stored } from './etcd.js';
import { log } from './log.js';
import type { Lease, State } from './state.js';

const leaseSeconds = 15;
const beat = 5000; // between two signs of life

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
  #state: State = 'UNINITIALIZED'; // as it should be registered
  #registered: State | undefined; // as it is
  #lease = '0';
  #created = '0'; // create revision of the key; 0 until it is ours
  #wake: () => void = () => {};
  #asked = false;
  #closed = false;
  #kept: Promise<void> | undefined;

  /** noted is told what is known of the lease. */
  constructor(private readonly etcd: Etcd, private readonly record: InstanceRecord, noted: (lease: Lease) => void) {
    this.#key = `/troupe/v1/reg/${record.agent}/${record.instanceId}`;
    this.#noted = noted;
  }

  /** Registers, and goes on until close. While etcd is away it keeps trying. */
  open(): void {
    this.#kept = this.#keep();
  }

  /** Registers another state as soon as can be. BUSY is registered as READY: it changes too often. */
  setState(state: State): void {
    this.#state = state === 'BUSY' ? 'READY' : state;
    if (this.#state !== this.#registered) this.#ask();
  }

  /** Takes the instance out of the registry, for good. */
  async close(): Promise<void> {
    this.#closed = true;
    this.#ask();
    await this.#kept;
    const lease = this.#lease;
    this.#lease = '0';
    if (lease !== '0') await this.etcd.revoke(lease); // else it runs out by itself
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
          if (this.#created !== '0') this.#noted('UNKNOWN'); // the worker goes on
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

  /** What to think of a key that is not as it was expected. */
  #adopt(stored: Stored | undefined): void {
    if (!stored) return this.#lost('the registration was deleted; registering anew');
    if (stored.lease !== this.#lease) {
      if (this.#created !== '0') this.#lost('another instance took the registration');
      throw new Error(`instance ${this.record.instanceId} of agent ${this.record.agent} is registered already: end it, give this one another id, or wait for its lease to run out`);
    }
    this.#created = stored.createRevision; // an earlier try got through without an answer
  }

  /** Gives a sign of life, and looks whether all is as it was left. */
  async #look(): Promise<void> {
    if (await this.etcd.keepAlive(this.#lease) === 0) throw new LeaseGone('etcd has ended the lease');
    if (this.#created === '0') return; // it waits for its place
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

  /** Waits so long, or until something is asked for. */
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
