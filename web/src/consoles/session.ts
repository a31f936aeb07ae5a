/** The console of a session that the server runs (spec/server-v1.md). */

import { post, Refusal, refusalOf } from "../api";
import { quoted } from "../route";
import type { Item, Started } from "../shapes";
import { Console, type Language } from "./console";
import { added, answered, type Heard, heard, NOTHING } from "./transcript";

const NO_SESSION = 4004;
const AGAIN = 1000;

export class SessionConsole extends Console {
  readonly languages = ["python"] as const;
  readonly #name: string;
  #socket: WebSocket | null = null;
  #left = false;
  /** What was typed before the session was ready. */
  #early: string[] = [];

  constructor(name: string) {
    super();
    this.#name = name;
    void this.#begin();
  }

  async #begin(): Promise<void> {
    try {
      const started = await post<Started>("/v1/sessions", { name: this.#name });
      this.#connect(lacking(started.report));
    } catch (error) {
      this.trouble.value = refusalOf(error);
      this.state.value = "ended";
    }
  }

  #connect(lack: Item[]): void {
    if (this.#left) return;
    const origin = location.origin.replace(/^http/, "ws");
    const socket = new WebSocket(`${origin}/v1/sessions/${quoted(this.#name)}/console`, [
      "holdfast.v1",
    ]);
    this.#socket = socket;
    socket.onopen = () => {
      // The server tells again what was said.
      this.transcript.value = NOTHING;
      this.state.value = "ready";
      for (const each of lack) {
        const text = `${each.name} did not come back: ${each.reason || each.outcome}`;
        this.transcript.value = added(this.transcript.value, { kind: "note", text, id: -1 });
      }
      for (const code of this.#early.splice(0)) this.run("python", code);
    };
    socket.onmessage = (message) => {
      this.transcript.value = heard(this.transcript.value, JSON.parse(message.data) as Heard);
    };
    socket.onclose = (event) => {
      if (this.#left) return;
      if (event.code === NO_SESSION || this.state.value === "starting") {
        this.ending.value = event.reason;
        this.state.value = "ended";
      } else {
        setTimeout(() => this.#connect([]), AGAIN);
      }
    };
  }

  #send(message: object): void {
    if (this.#socket?.readyState === WebSocket.OPEN) this.#socket.send(JSON.stringify(message));
    else {
      this.trouble.value = new Refusal(
        "fault",
        "the console is not connected",
        "it comes back by itself when the server does",
        0,
      );
    }
  }

  run(_language: Language, code: string): void {
    if (this.state.value === "starting") this.#early.push(code);
    else this.#send({ type: "ExecuteMessage", execution_id: 0, code });
  }

  answer(text: string): void {
    const { question } = this.transcript.value;
    if (!question) return;
    this.#send({ type: "InputResponseMessage", request_id: question.request_id, text });
    this.transcript.value = answered(this.transcript.value, text);
  }

  interrupt(): void {
    this.#send({ type: "InterruptMessage" });
  }

  leave(): void {
    this.#left = true;
    this.#socket?.close();
  }
}

function lacking(report: Item[]): Item[] {
  return report.filter((each) => each.outcome === "placeholder" || each.outcome === "skipped");
}
