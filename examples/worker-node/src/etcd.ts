// The part of etcd that a registration needs: leases, and one key that is written in transactions.

import * as grpc from '@grpc/grpc-js';
import { invoke } from './calls.js';
import { fromStatus } from './errors.js';
import { service } from './protos.js';

const callTime = 3000; // bounds each call, so that a member that hangs is noticed

/** A stored value with its revision. */
export interface Stored {
  createRevision: string;
  lease: string;
}

/** A transaction whose condition is the key's create revision; 0 means that there is no such key. */
export interface GuardedPut {
  key: string;
  createRevision: string;
  value: string;
  lease: string;
}

interface TxnResponse { succeeded: boolean; responses: { responseRange?: { kvs: Stored[] } }[] }

export class Etcd {
  readonly #kv = service('etcdserverpb.KV');
  readonly #lease = service('etcdserverpb.Lease');
  readonly #endpoints: string[];
  readonly #credentials: grpc.ChannelCredentials;
  #client: grpc.Client | undefined;

  /** Endpoints are the members of one cluster: https://host:port, which want the credentials, or host:port in plain text. */
  constructor(endpoints: string[], credentials: grpc.ChannelCredentials | undefined) {
    const secure = endpoints.some((e) => e.startsWith('https://'));
    if (secure && !credentials) throw new Error('--etcd: an address with https:// wants a certificate; give --tls-cert, --tls-key and --tls-ca');
    this.#credentials = secure ? credentials! : grpc.credentials.createInsecure();
    this.#endpoints = endpoints.map((e) => e.replace(/^https?:\/\//, ''));
  }

  /** Grants a lease and returns its id. */
  async grant(seconds: number): Promise<string> {
    return (await this.#call<{ ID: string }>(this.#lease, 'LeaseGrant', { TTL: seconds })).ID;
  }

  /** Revokes a lease, which deletes the keys under it. */
  async revoke(lease: string): Promise<void> {
    await this.#call(this.#lease, 'LeaseRevoke', { ID: lease });
  }

  /** Renews a lease and returns its remaining seconds (0 when the lease is gone). */
  keepAlive(lease: string): Promise<number> {
    const method = this.#lease['LeaseKeepAlive']!;
    return new Promise((resolve, reject) => {
      const stream = this.#connect().makeBidiStreamRequest(method.path, method.requestSerialize, method.responseDeserialize, { deadline: Date.now() + callTime });
      stream.once('data', (answer: { TTL: string }) => {
        resolve(Math.max(0, Number(answer.TTL)));
        stream.end();
      });
      stream.once('end', () => reject(new Error('etcd ended the stream without an answer')));
      stream.on('error', (err: grpc.ServiceError) => reject(this.#away(method.path, err)));
      stream.write({ ID: lease });
    });
  }

  /** Returns the value of the key, if it exists. */
  async get(key: string): Promise<Stored | undefined> {
    return (await this.#call<{ kvs: Stored[] }>(this.#kv, 'Range', { key: Buffer.from(key) })).kvs[0];
  }

  /** Writes the key if the condition holds, in one transaction, and returns what is stored afterwards either way. */
  async put(p: GuardedPut): Promise<{ done: boolean; stored: Stored | undefined }> {
    const key = Buffer.from(p.key);
    const get = { requestRange: { key } };
    const response = await this.#call<TxnResponse>(this.#kv, 'Txn', {
      compare: [{ result: 'EQUAL', target: 'CREATE', key, createRevision: p.createRevision }],
      success: [{ requestPut: { key, value: Buffer.from(p.value), lease: p.lease } }, get],
      failure: [get],
    });
    return { done: response.succeeded, stored: response.responses.at(-1)?.responseRange?.kvs[0] };
  }

  close(): void {
    this.#client?.close();
  }

  async #call<Res>(definition: grpc.ServiceDefinition, name: string, request: object): Promise<Res> {
    const method = definition[name] as unknown as grpc.MethodDefinition<object, Res>;
    try {
      return await invoke(this.#connect(), method, request, Date.now() + callTime);
    } catch (err) {
      throw this.#away(method.path, (err as Error).cause as grpc.ServiceError);
    }
  }

  #connect(): grpc.Client {
    this.#client ??= new grpc.Client(this.#endpoints[0]!, this.#credentials, { 'grpc.enable_http_proxy': 0 });
    return this.#client;
  }

  /** After a call without an answer the next one goes to the next member, on a new connection. */
  #away(path: string, err: grpc.ServiceError): Error {
    if (err.code === grpc.status.UNAVAILABLE || err.code === grpc.status.DEADLINE_EXCEEDED) {
      this.#client?.close();
      this.#client = undefined;
      this.#endpoints.push(this.#endpoints.shift()!);
    }
    return err.code === grpc.status.NOT_FOUND ? new LeaseGone() : fromStatus(path, err);
  }
}

/** LeaseGone is the error for a lease that etcd does not know. */
export class LeaseGone extends Error {}
