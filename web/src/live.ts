/** Keeps the page's picture of the store current, by the server's events (spec/server-v1.md). */

import { computed, signal } from "@preact/signals";
import { get, ofSubject, Refusal, refusalOf } from "./api";
import { type Change, changedBy, EMPTY, type Picture, type Proven, type Running } from "./picture";
import type { Lineage, Subjects } from "./shapes";

type Event =
  | { event: "hello"; sequence: number; running: Running; proven: Proven }
  | Change
  | { event: "running"; running: Running }
  | { event: "proven"; proven: Proven }
  | { event: "trouble"; error: { kind: string; message: string; hint: string | null } | null };

export const picture = signal<Picture>(EMPTY);
export const running = signal<Running>({ sessions: [], sandboxes: [] });
export const proven = signal<Proven>({ verified: null, drilled: null, drilling: false });
/** Whether what is shown is what there is: `lost` while the server is away. */
export const link = signal<"connecting" | "live" | "lost">("connecting");
export const trouble = signal<Refusal | null>(null);
export const now = signal(Date.now());
export const known = computed(() => picture.value.sequence >= 0);

const FIRST_DELAY = 250;
const LONGEST_DELAY = 5000;
let delay = FIRST_DELAY;
/** Subjects whose lineage somebody looks at, and how many do. */
const watched = new Map<string, number>();
/** Why the lineage of a subject cannot be shown. */
export const refused = signal<ReadonlyMap<string, Refusal>>(new Map());

export function begin(): void {
  connect();
  setInterval(() => {
    now.value = Date.now();
  }, 5000);
}

function connect(): void {
  const origin = location.origin.replace(/^http/, "ws");
  const socket = new WebSocket(`${origin}/v1/events`, ["holdfast.v1"]);
  socket.onmessage = (message) => {
    delay = FIRST_DELAY;
    take(JSON.parse(message.data) as Event);
  };
  socket.onclose = () => {
    link.value = "lost";
    setTimeout(reconnect, delay);
    delay = Math.min(LONGEST_DELAY, delay * 2);
  };
}

async function reconnect(): Promise<void> {
  try {
    // A browser does not tell why a WebSocket was refused; this asks, and leads to the login.
    await get("/v1/openapi.json");
  } catch {
    // It is not back yet; the socket will say so as well.
  }
  connect();
}

function take(event: Event): void {
  now.value = Date.now();
  switch (event.event) {
    case "hello":
      running.value = event.running;
      proven.value = event.proven;
      if (event.sequence === picture.value.sequence) link.value = "live";
      else void reload(event.sequence);
      break;
    case "change": {
      const next = changedBy(picture.value, event);
      if (next === null) void reload(event.sequence);
      else {
        picture.value = next;
        // One that was not there when it was asked for has come into being.
        for (const { subject } of event.subjects) {
          if (watched.has(subject) && !next.lineages.has(subject)) void ask(subject);
        }
      }
      break;
    }
    case "running":
      running.value = event.running;
      break;
    case "proven":
      proven.value = event.proven;
      break;
    case "trouble":
      trouble.value = event.error
        ? new Refusal(event.error.kind, event.error.message, event.error.hint, 0)
        : null;
  }
}

/** Ask for everything anew; what is told while it is under way asks again. */
async function reload(sequence: number): Promise<void> {
  try {
    const found = await get<Subjects>("/v1/subjects");
    const subjects = new Map(found.subjects.map((each) => [each.subject, each]));
    picture.value = { ...picture.value, sequence, subjects };
    link.value = "live";
  } catch (error) {
    trouble.value = refusalOf(error);
    return;
  }
  await Promise.all([...watched.keys()].map(ask));
}

/** Subjects that are being asked for, and whether something happened meanwhile. */
const asking = new Map<string, boolean>();

async function ask(subject: string): Promise<void> {
  if (asking.has(subject)) {
    asking.set(subject, true);
    return;
  }
  do {
    asking.set(subject, false);
    const before = picture.value.sequence;
    await askOnce(subject);
    // What happened while the answer was under way may or may not be in it.
    if (picture.value.sequence !== before) asking.set(subject, true);
  } while (asking.get(subject) && watched.has(subject));
  asking.delete(subject);
}

async function askOnce(subject: string): Promise<void> {
  const why = new Map(refused.value);
  try {
    const found = await get<Lineage>(ofSubject(subject, "/lineage"));
    const lineages = new Map(picture.value.lineages);
    lineages.set(subject, found);
    picture.value = { ...picture.value, lineages };
    why.delete(subject);
  } catch (error) {
    why.set(subject, refusalOf(error));
  }
  refused.value = why;
}

/** Keep a subject's lineage current until the function that is given back is called. */
export function watch(subject: string): () => void {
  watched.set(subject, (watched.get(subject) ?? 0) + 1);
  // Before the first event, it is asked for along with everything else.
  if (watched.get(subject) === 1 && known.value) void ask(subject);
  return () => {
    const left = (watched.get(subject) ?? 1) - 1;
    if (left > 0) {
      watched.set(subject, left);
      return;
    }
    watched.delete(subject);
    const lineages = new Map(picture.value.lineages);
    lineages.delete(subject);
    picture.value = { ...picture.value, lineages };
  };
}
