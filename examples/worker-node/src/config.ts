// The settings of the worker: flags, with environment variables as their defaults.

import { parseArgs } from 'node:util';
import { parseDuration } from './durations.js';

export interface Config {
  grpcAddr: string;
  httpAddr: string;
  advertiseAddr: string; // empty means the gRPC address
  instanceId: string; // empty means a random one
  etcd: string[];
  memory: string;
  drain: number; // milliseconds
  agent: string;
  tlsCert: string; // empty means plain text, as for the next two
  tlsKey: string;
  tlsCa: string;
  conformance: boolean;
}

const flags = {
  'grpc-addr': ['TROUPE_GRPC_ADDR', '127.0.0.1:7402', 'Address to serve gRPC on.'],
  'http-addr': ['TROUPE_HTTP_ADDR', '127.0.0.1:7482', 'Address of the plain HTTP port: /livez /readyz /startupz.'],
  'advertise-addr': ['TROUPE_ADVERTISE_ADDR', '', 'Address that the orchestrator dials (empty means the gRPC address).'],
  'instance-id': ['TROUPE_INSTANCE_ID', '', 'Id of this instance, unique for the agent (empty means a random one).'],
  etcd: ['TROUPE_ETCD', '127.0.0.1:2379', 'Addresses of etcd, https://host:port or host:port in plain text, separated by commas.'],
  memory: ['TROUPE_MEMORY', '127.0.0.1:7401', 'Address of the memory service.'],
  drain: ['TROUPE_DRAIN', '30s', 'How long running steps may take to end when the worker stops.'],
  agent: ['TROUPE_AGENT', 'words', 'Name of the agent in the mesh.'],
  'tls-cert': ['TROUPE_TLS_CERT', '', 'PEM file with the certificate of this worker (empty means plain text).'],
  'tls-key': ['TROUPE_TLS_KEY', '', 'PEM file with its key.'],
  'tls-ca': ['TROUPE_TLS_CA', '', 'PEM file with the CAs of the mesh.'],
} as const satisfies Record<string, [variable: string, otherwise: string, help: string]>;

/** The help text. */
export function usage(): string {
  const lines = Object.entries(flags).map(([flag, [variable, otherwise, help]]) => `  --${flag}=${otherwise || '…'}  ${help} ($${variable})`);
  return ['Usage: node dist/src/main.js [flags]', '', ...lines, '  --conformance  Serve test instances to the conformance kit, and register nothing.', ''].join('\n');
}

/** Reads the settings. Returns undefined for --help, and fails with the first invalid setting. */
export function readConfig(args: string[], env: NodeJS.ProcessEnv): Config | undefined {
  const names = Object.keys(flags) as (keyof typeof flags)[];
  const values: Record<string, string | boolean | undefined> = parseArgs({
    args,
    options: {
      ...Object.fromEntries(names.map((n) => [n, { type: 'string' as const }])),
      conformance: { type: 'boolean' },
      help: { type: 'boolean' },
    },
  }).values;
  if (values['help']) return undefined;
  const setting = (name: keyof typeof flags) => String(values[name] ?? env[flags[name][0]] ?? flags[name][1]);
  const drain = parseDuration(setting('drain'));
  if (drain === undefined) throw new Error(`--drain: ${setting('drain')} is no duration, such as 30s`);
  const agent = setting('agent');
  if (!/^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$/.test(agent)) throw new Error(`--agent: ${agent} is no name: use a-z, 0-9 and -, at most 63`);
  return {
    grpcAddr: setting('grpc-addr'),
    httpAddr: setting('http-addr'),
    advertiseAddr: setting('advertise-addr'),
    instanceId: setting('instance-id'),
    etcd: setting('etcd').split(',').filter(Boolean),
    memory: setting('memory'),
    drain,
    agent,
    tlsCert: setting('tls-cert'),
    tlsKey: setting('tls-key'),
    tlsCa: setting('tls-ca'),
    conformance: values['conformance'] === true,
  };
}
