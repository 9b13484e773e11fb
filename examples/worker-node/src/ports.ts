// Opening and closing the ports of the worker.

import { once } from 'node:events';
import type http from 'node:http';
import type { AddressInfo } from 'node:net';
import * as grpc from '@grpc/grpc-js';

/** A gRPC server with the limits of the mesh. */
export function newServer(interceptors: grpc.ServerInterceptor[] = []): grpc.Server {
  return new grpc.Server({
    interceptors,
    'grpc.max_receive_message_length': 16 << 20,
    'grpc.max_concurrent_streams': 256,
    'grpc.keepalive_time_ms': 10_000,
    'grpc.keepalive_timeout_ms': 3000,
  });
}

/** Host and port of an address; the host may be in brackets. */
export function split(address: string): { host: string; port: number } {
  const [, host, port] = /^(.*):(\d{1,5})$/.exec(address) ?? [];
  if (host === undefined) throw new Error(`${address}: an address is host:port`);
  return { host: host.replace(/^\[|\]$/g, '') || '0.0.0.0', port: Number(port) };
}

/** Serves on an address, and returns it with the port that was taken. */
export async function listen(server: grpc.Server, address: string, credentials = grpc.ServerCredentials.createInsecure()): Promise<string> {
  const { host } = split(address);
  const port = await new Promise<number>((resolve, reject) => {
    const target = address.startsWith(':') ? host + address : address;
    server.bindAsync(target, credentials, (err, taken) => (err ? reject(err) : resolve(taken)));
  });
  return `${host.includes(':') ? `[${host}]` : host}:${port}`;
}

/** Serves HTTP on an address, and returns it with the port that was taken. */
export async function listenHttp(server: http.Server, address: string): Promise<string> {
  const { host, port } = split(address);
  server.listen(port, host);
  await once(server, 'listening');
  return `${host}:${(server.address() as AddressInfo).port}`;
}

/** Closes a gRPC server; calls that run have so many milliseconds to end. */
export async function close(server: grpc.Server, grace: number): Promise<void> {
  await new Promise<void>((resolve) => {
    const force = setTimeout(() => {
      server.forceShutdown();
      resolve();
    }, grace);
    server.tryShutdown(() => {
      clearTimeout(force);
      resolve();
    });
  });
}
