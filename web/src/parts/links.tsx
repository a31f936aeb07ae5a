/** Links inside the page, and the small marks that go with them. */

import type { ComponentChildren } from "preact";
import { now } from "../live";
import { address, go, type Route } from "../route";
import type { Checkpoint } from "../shapes";
import { age, exact, honest } from "../words";

/** Let a link stay inside the page, unless it is wanted elsewhere. */
export function follow(event: MouseEvent, to: Route): void {
  if (event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  event.preventDefault();
  go(to);
}

export function Link(props: {
  to: Route;
  class?: string;
  title?: string;
  current?: boolean;
  children: ComponentChildren;
}) {
  return (
    <a
      href={address(props.to)}
      class={props.class}
      title={props.title}
      aria-current={props.current ? "page" : undefined}
      onClick={(event) => follow(event, props.to)}
    >
      {props.children}
    </a>
  );
}

export function SubjectLink({ subject }: { subject: string }) {
  return <Link to={{ view: "subject", subject }}>{honest(subject)}</Link>;
}

export function CheckpointLink({ checkpoint }: { checkpoint: { id: string; short: string } }) {
  return (
    <Link to={{ view: "checkpoint", id: checkpoint.id }}>
      <code>{checkpoint.short}</code>
    </Link>
  );
}

export function Age({ time }: { time: string }) {
  return (
    <time dateTime={time} title={exact(time)}>
      {age(time, now.value)}
    </time>
  );
}

const KINDS: Record<string, string> = {
  state: "an application's own state",
  session: "a live Python session",
  sandbox: "untrusted code with its processes and files",
  container: "an OCI container",
  bundle: "checkpoints that belong together",
};

export function KindMark({ kind }: { kind: string }) {
  return (
    <span class={`kind ${kind}`} title={KINDS[kind]}>
      {kind}
    </span>
  );
}

/** What is special about a checkpoint, in single words. */
export function marks(checkpoint: Checkpoint, head: boolean) {
  return (
    <>
      {head && <span class="mark head">head</span>}
      {checkpoint.pinned && <span class="mark">pinned</span>}
      {checkpoint.rollback_of && <span class="mark rollback">rollback</span>}
      {checkpoint.foreign && <span class="mark warn">foreign</span>}
      {Object.entries(checkpoint.tags).map(([name, value]) => (
        <span key={name} class="mark tag" title={value ? `${name} = ${value}` : name}>
          {honest(value ? `${name}=${value}` : name)}
        </span>
      ))}
    </>
  );
}

export function Marks(props: { checkpoint: Checkpoint; head: boolean }) {
  return marks(props.checkpoint, props.head);
}
