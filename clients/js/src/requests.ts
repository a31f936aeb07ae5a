/** From what users write to frames on the wire, and back. */

import type { CheckpointEvent, CreateRequest, ExecuteRequest } from "./messages.js";
import type { CheckpointInfo, CheckpointOptions, CreateOptions, ExecOptions } from "./types.js";

/** The first frame on `/create`. Only what was asked for is sent, as other clients do. */
export function createRequest(options: CreateOptions): CreateRequest {
  const all: CreateRequest = {
    ...(options.idleTimeout !== undefined && { idle_timeout: options.idleTimeout }),
    ...((options.enableCheckpoint || options.enableSandboxCheckpoint) && {
      enable_checkpoint: true,
    }),
    ...(options.enableIdleTimeoutAutoCheckpoint && { enable_idle_timeout_auto_checkpoint: true }),
    ...(options.enableSandboxHandoff && { enable_sandbox_handoff: true }),
    ...(options.filesystemSnapshotName !== undefined && {
      filesystem_snapshot_name: options.filesystemSnapshotName,
    }),
    ...(options.engine !== undefined && { engine: options.engine }),
    ...(options.name !== undefined && { name: options.name }),
    ...(options.image !== undefined && { image: options.image }),
    ...(options.limits !== undefined && { limits: options.limits }),
    ...(options.network && { network: true }),
    ...(options.offline && { offline: true }),
    ...(options.ports !== undefined && { ports: options.ports }),
    ...(options.egress !== undefined && { egress: options.egress }),
    ...(options.template !== undefined && { template: options.template }),
  };
  return all;
}

/** A frame that runs code, or a program by its arguments. */
export function executeRequest(
  what: string | string[],
  code: string,
  options: ExecOptions,
): ExecuteRequest {
  const { pty } = options;
  return {
    ...(Array.isArray(what) ? { argv: what as [string, ...string[]] } : { language: what, code }),
    ...(options.env !== undefined && { env: options.env }),
    ...(options.cwd !== undefined && { cwd: options.cwd }),
    ...(pty && { pty: true }),
    ...(typeof pty === "object" && pty),
    ...(options.session && { session: true }),
    ...(options.stdin === false && { stdin: false }),
    ...(options.binary && { encoding: "base64" as const }),
  };
}

export function checkpointRequest(options: CheckpointOptions): object {
  return {
    action: "checkpoint",
    ...(options.reason !== undefined && { reason: options.reason }),
    ...(options.leaveRunning && { leave_running: true }),
    ...(options.duringExecution && { during_execution: true }),
  };
}

/** What the server told of a checkpoint; servers without identifiers tell nothing. */
export function checkpointInfo(event: CheckpointEvent | undefined): CheckpointInfo {
  return {
    id: event?.id,
    short: event?.short,
    subject: event?.subject,
    sizeBytes: event?.size_bytes,
    storedBytes: event?.stored_bytes,
    pauseMs: event?.pause_ms,
  };
}
