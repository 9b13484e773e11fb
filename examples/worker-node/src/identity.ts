// The identity of this worker and of its peers: mutual TLS that checks SPIFFE ids and no host names.

import { X509Certificate } from 'node:crypto';
import { readFileSync } from 'node:fs';
import tls from 'node:tls';
import * as grpc from '@grpc/grpc-js';
import type { Config } from './config.js';

const denied = { code: grpc.status.PERMISSION_DENIED, details: 'this worker takes calls of the orchestrator alone', metadata: new grpc.Metadata() };

/** The SPIFFE id of a certificate: its only URI, and else undefined. */
function spiffeId(subjectAltName: string | undefined): string | undefined {
  const uris = (subjectAltName ?? '').split(', ').filter((name) => name.startsWith('URI:'));
  return uris.length === 1 ? uris[0]!.slice('URI:'.length) : undefined;
}

export class Identity {
  readonly #cert: Buffer;
  readonly #key: Buffer;
  readonly #ca: Buffer;
  readonly #domain: string;

  /** Reads the files. Fails if the certificate does not belong to a worker of the agent. */
  constructor(config: Config) {
    if (!config.tlsCert || !config.tlsKey || !config.tlsCa) throw new Error('--tls-cert, --tls-key and --tls-ca belong together');
    [this.#cert, this.#key, this.#ca] = [readFileSync(config.tlsCert), readFileSync(config.tlsKey), readFileSync(config.tlsCa)];
    const id = spiffeId(new X509Certificate(this.#cert).subjectAltName);
    const domain = /^spiffe:\/\/([^/]+)\/worker\/([^/]+)$/.exec(id ?? '');
    if (!domain || domain[2] !== config.agent) throw new Error(`--tls-cert: ${config.tlsCert} belongs to ${id ?? 'no process of the mesh'}, not to a worker of ${config.agent}`);
    this.#domain = domain[1]!;
    tls.DEFAULT_MIN_VERSION = 'TLSv1.3';
  }

  /** For connections to the memory service; rejects any other server. */
  toMemory(): grpc.ChannelCredentials {
    return grpc.credentials.createSsl(this.#ca, this.#key, this.#cert, {
      checkServerIdentity: (_host, cert) => this.#is(cert.subjectaltname, 'memory'),
    });
  }

  /** For connections to etcd: it is known by its host name, and knows this worker by the common name of the certificate. */
  toEtcd(): grpc.ChannelCredentials {
    return grpc.credentials.createSsl(this.#ca, this.#key, this.#cert);
  }

  /** For the server: clients must have a certificate of the mesh. */
  server(): grpc.ServerCredentials {
    return grpc.ServerCredentials.createSsl(this.#ca, [{ private_key: this.#key, cert_chain: this.#cert }], true);
  }

  /** Rejects calls of every process except the orchestrator. */
  guard(): grpc.ServerInterceptor {
    return (_method, call) => new grpc.ServerInterceptingCall(call, {
      start: (next) => next({
        onReceiveMetadata: (metadata, handle) => {
          const caller = call.getAuthContext().sslPeerCertificate;
          if (this.#is(caller?.subjectaltname, 'orchestrator')) call.sendStatus(denied);
          else handle(metadata);
        },
      }),
    });
  }

  /** Returns why a peer does not have the role (undefined if it has). */
  #is(subjectAltName: string | undefined, role: string): Error | undefined {
    const id = spiffeId(subjectAltName);
    const want = `spiffe://${this.#domain}/${role}`;
    return id === want ? undefined : new Error(`the peer is ${id ?? 'unknown'}, not ${want}`);
  }
}
