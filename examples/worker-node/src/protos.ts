// The contract, loaded from its .proto files when the worker starts: there is no generated code.

import { fileURLToPath } from 'node:url';
import * as grpc from '@grpc/grpc-js';
import * as loader from '@grpc/proto-loader';

// This file runs as dist/src/protos.js.
const here = (path: string) => fileURLToPath(new URL(path, import.meta.url));
const contract = process.env['TROUPE_PROTO'] ?? here('../../../../proto');
const vendored = here('../../proto');

const definitions = loader.loadSync(
  [
    'troupe/v1/lifecycle.proto',
    'troupe/v1/agent.proto',
    'troupe/v1/memory.proto',
    'troupe/v1/conformance.proto',
    'etcd/rpc.proto',
    'google/rpc/status.proto',
  ],
  // 64-bit numbers as strings: an epoch can be larger than what a number holds exactly.
  { includeDirs: [contract, vendored], longs: String, enums: String, defaults: true, oneofs: true },
);

/** The definition of a service, by its full name. */
export function service(name: string): grpc.ServiceDefinition {
  const found = definitions[name];
  if (!found || 'format' in found) throw new Error(`no service ${name} in ${contract}`);
  return found as grpc.ServiceDefinition;
}

/** What turns a message into bytes and back, by the message's full name. */
export function message<T extends object>(name: string): { serialize(value: T): Buffer; deserialize(bytes: Buffer): T } {
  const found = definitions[name];
  if (!found || !('serialize' in found)) throw new Error(`no message ${name} in ${contract}`);
  return found as unknown as { serialize(value: T): Buffer; deserialize(bytes: Buffer): T };
}
