/** A live console: type, see the output as it comes, answer what a program asks. */

import type { JSX } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import * as actions from "../actions";
import { type Refusal, refusalOf } from "../api";
import type { Console, Language } from "../consoles/console";
import * as consoles from "../consoles/open";
import type { Line } from "../consoles/transcript";
import { KindMark, Link, SubjectLink } from "../parts/links";
import { Empty, Trouble, Waiting } from "../parts/states";
import { honest } from "../words";

export function ConsoleView({ subject }: { subject: string }) {
  const [kind = ""] = subject.split("/");
  const [found, setFound] = useState<Console | null>(null);
  const [error, setError] = useState<Refusal | null>(null);
  const begin = () => {
    const there = consoles.find(subject);
    setFound(there);
    const token = consoles.rememberedToken(subject);
    if (!there && token) void attach(token);
  };
  useEffect(begin, [subject]);
  const attach = async (token: string) => {
    setError(null);
    try {
      setFound(await consoles.attach(subject, token));
    } catch (refused) {
      setError(refusalOf(refused));
    }
  };
  if (kind !== "session" && kind !== "sandbox") {
    return (
      <Empty title="There is no console for this">
        <p>Sessions and sandboxes have one.</p>
        <Link to={{ view: "run" }} class="button">
          Run something
        </Link>
      </Empty>
    );
  }
  return (
    <>
      <nav class="crumbs" aria-label="Where you are">
        <Link to={{ view: "run" }}>Run</Link> / <SubjectLink subject={subject} />
      </nav>
      {found ? (
        <Live subject={subject} console={found} onAgain={begin} />
      ) : (
        <Attach subject={subject} error={error} onToken={attach} />
      )}
    </>
  );
}

function Attach(props: {
  subject: string;
  error: Refusal | null;
  onToken: (token: string) => Promise<void>;
}) {
  const submit = (event: JSX.TargetedSubmitEvent<HTMLFormElement>) => {
    event.preventDefault();
    void props.onToken(String(new FormData(event.currentTarget).get("token")));
  };
  return (
    <Empty title={`Attach to ${honest(props.subject)}`}>
      <p>
        Whoever made this sandbox has its token. It is not sent to anybody but this server, and is
        forgotten when this tab closes.
      </p>
      <form class="inline" onSubmit={submit}>
        <label>
          Token of the sandbox <input name="token" type="password" required autocomplete="off" />
        </label>
        <button type="submit" class="primary">
          Attach
        </button>
      </form>
      {props.error && <Trouble error={props.error} />}
    </Empty>
  );
}

function Live(props: { subject: string; console: Console; onAgain: () => void }) {
  const { subject, console } = props;
  const { lines, running, question } = console.transcript.value;
  const state = console.state.value;
  const lives = actions.runner(subject);
  return (
    <>
      <div class="title">
        <h1>
          <KindMark kind={subject.split("/")[0] ?? ""} />{" "}
          {honest(subject.split("/").slice(1).join("/"))}
          {state === "ready" && <span class="mark live">{running.size ? "running" : "ready"}</span>}
        </h1>
        <div class="buttons">
          <button type="button" disabled={!running.size} onClick={() => console.interrupt()}>
            Interrupt
          </button>
          <button
            type="button"
            class="primary"
            disabled={!lives}
            onClick={() => actions.checkpoint(subject)}
          >
            Checkpoint
          </button>
          <button type="button" disabled={!lives} onClick={() => actions.rollback(subject, null)}>
            Roll back
          </button>
          <button type="button" disabled={!lives} onClick={() => actions.stop(subject)}>
            Stop
          </button>
        </div>
      </div>
      {console.trouble.value && <Trouble error={console.trouble.value} />}
      {state === "starting" && <Waiting what="Starting" />}
      <Screen lines={lines} isSession={subject.startsWith("session/")} />
      {state === "ended" ? (
        <div class="ended">
          <p>
            It has ended{console.ending.value && `: ${honest(console.ending.value)}`}.{" "}
            <SubjectLink subject={subject} /> has its checkpoints.
          </p>
          <div class="buttons">
            {console.returns && (
              <button type="button" class="primary" onClick={props.onAgain}>
                Bring it back
              </button>
            )}
            <Link to={{ view: "run" }} class="button">
              Run something else
            </Link>
          </div>
        </div>
      ) : question ? (
        <Answer
          key={question.request_id}
          prompt={question.prompt ?? ""}
          secret={question.password ?? false}
          onAnswer={(text) => console.answer(text)}
        />
      ) : (
        <Prompt console={console} />
      )}
    </>
  );
}

function Screen({ lines, isSession }: { lines: readonly Line[]; isSession: boolean }) {
  const box = useRef<HTMLDivElement>(null);
  const following = useRef(true);
  useLayoutEffect(() => {
    if (box.current && following.current) box.current.scrollTop = box.current.scrollHeight;
  });
  return (
    <div
      class="screen"
      role="log"
      aria-label="Console"
      // biome-ignore lint/a11y/noNoninteractiveTabindex: it scrolls
      tabIndex={0}
      ref={box}
      onScroll={(event) => {
        const one = event.currentTarget;
        following.current = one.scrollTop + one.clientHeight > one.scrollHeight - 30;
      }}
    >
      {lines.length === 0 && (
        <p class="soft">
          Nothing was said yet. Type below
          {isSession && (
            <>
              ; <code>dir()</code> lists the names that are there
            </>
          )}
          .
        </p>
      )}
      {lines.map((line, at) => (
        <pre key={at} class={`line ${line.kind}`}>
          {honest(line.text)}
        </pre>
      ))}
    </div>
  );
}

function Answer(props: { prompt: string; secret: boolean; onAnswer: (text: string) => void }) {
  const submit = (event: JSX.TargetedSubmitEvent<HTMLFormElement>) => {
    event.preventDefault();
    const form = event.currentTarget;
    props.onAnswer(String(new FormData(form).get("answer")));
    form.reset();
  };
  return (
    <form class="prompt" onSubmit={submit}>
      <label class="grow">
        <span class="soft">{honest(props.prompt) || "Its input"}</span>
        <input
          name="answer"
          type={props.secret ? "password" : "text"}
          autocomplete="off"
          autofocus
          spellcheck={false}
        />
      </label>
      <button type="submit" class="primary">
        Send
      </button>
    </form>
  );
}

function Prompt({ console }: { console: Console }) {
  const [code, setCode] = useState("");
  const [language, setLanguage] = useState<Language>(console.languages[0] ?? "python");
  const [past, setPast] = useState<string[]>([]);
  const [at, setAt] = useState(0);
  const send = () => {
    if (!code.trim()) return;
    console.run(language, code);
    setPast([...past, code]);
    setAt(past.length + 1);
    setCode("");
  };
  const recall = (to: number) => {
    if (to < 0 || to > past.length) return;
    setAt(to);
    setCode(past[to] ?? "");
  };
  const press = (event: JSX.TargetedKeyboardEvent<HTMLTextAreaElement>) => {
    const oneLine = !code.includes("\n");
    if (event.key === "Enter" && !event.shiftKey && (oneLine || event.ctrlKey)) {
      event.preventDefault();
      send();
    } else if (event.key === "ArrowUp" && oneLine && past.length) {
      event.preventDefault();
      recall(at - 1);
    } else if (event.key === "ArrowDown" && oneLine && past.length) {
      event.preventDefault();
      recall(at + 1);
    }
  };
  return (
    <form
      class="prompt"
      onSubmit={(event) => {
        event.preventDefault();
        send();
      }}
    >
      {console.languages.length > 1 && (
        <select
          aria-label="Language"
          value={language}
          onChange={(event) => setLanguage(event.currentTarget.value as Language)}
        >
          {console.languages.map((each) => (
            <option key={each} value={each}>
              {each}
            </option>
          ))}
        </select>
      )}
      <textarea
        class="grow"
        aria-label="Code"
        placeholder="Code. Enter runs it, Shift+Enter begins a line (then Ctrl+Enter runs)"
        rows={Math.min(12, Math.max(2, code.split("\n").length))}
        value={code}
        onInput={(event) => setCode(event.currentTarget.value)}
        onKeyDown={press}
        autocomplete="off"
        autocapitalize="off"
        spellcheck={false}
        autofocus
      />
      <button type="submit" class="primary" disabled={!code.trim()}>
        Run
      </button>
    </form>
  );
}
