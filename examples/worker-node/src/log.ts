// The log: one JSON object a line, on standard error.

export type Fields = Record<string, unknown>;

function write(level: string, message: string, fields: Fields): void {
  const shown = Object.fromEntries(Object.entries(fields).map(([k, v]) => [k, v instanceof Error ? explain(v) : v]));
  process.stderr.write(`${JSON.stringify({ level, ts: Date.now() / 1000, msg: message, ...shown })}\n`);
}

/** An error with its causes. */
function explain(err: Error): string {
  return err.cause instanceof Error ? `${err.message}: ${explain(err.cause)}` : err.message;
}

export const log = {
  info: (message: string, fields: Fields = {}) => write('info', message, fields),
  warn: (message: string, fields: Fields = {}) => write('warn', message, fields),
};
