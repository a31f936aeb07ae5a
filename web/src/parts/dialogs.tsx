/** Questions in front of the page: the browser's own dialog, which keeps the focus inside. */

import { signal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { type Refusal, refusalOf } from "../api";
import { Trouble } from "./states";

interface Field {
  name: string;
  label: string;
  value: string;
  hint?: string;
  type?: "text" | "password";
  optional?: boolean;
}

export interface Question {
  title: string;
  text?: ComponentChildren;
  fields?: Field[];
  action: string;
  danger?: boolean;
  /** Done when the question is answered; what it throws is shown, and the dialog stays. */
  run: (answers: Record<string, string>) => Promise<void>;
}

const question = signal<Question | null>(null);

export function ask(one: Question): void {
  question.value = one;
}

/** A dialog that is open as long as it is shown. */
export function Modal(props: { label: string; onClose: () => void; children: ComponentChildren }) {
  const box = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    box.current?.showModal();
  }, []);
  return (
    <dialog ref={box} aria-label={props.label} onClose={props.onClose}>
      {props.children}
    </dialog>
  );
}

export function Dialogs() {
  const one = question.value;
  // A key of its own for each question, so that nothing of the last one stays.
  return one && <Asking key={one.title} question={one} />;
}

function Asking({ question: one }: { question: Question }) {
  const [error, setError] = useState<Refusal | null>(null);
  const [busy, setBusy] = useState(false);
  const close = () => {
    question.value = null;
  };
  const submit = async (event: SubmitEvent) => {
    event.preventDefault();
    const form = new FormData(event.currentTarget as HTMLFormElement);
    const answers = Object.fromEntries([...form].map(([name, value]) => [name, String(value)]));
    setBusy(true);
    try {
      await one.run(answers);
      close();
    } catch (refused) {
      setError(refusalOf(refused));
      setBusy(false);
    }
  };
  return (
    <Modal label={one.title} onClose={close}>
      <form onSubmit={submit}>
        <h2>{one.title}</h2>
        {one.text && <p class="soft">{one.text}</p>}
        {one.fields?.map((field, at) => (
          <label key={field.name}>
            <span>{field.label}</span>
            <input
              name={field.name}
              type={field.type ?? "text"}
              defaultValue={field.value}
              required={!field.optional}
              maxLength={1000}
              autocomplete="off"
              spellcheck={false}
              autofocus={at === 0}
            />
            {field.hint && <small class="soft">{field.hint}</small>}
          </label>
        ))}
        {error && <Trouble error={error} />}
        <div class="buttons end">
          <button type="button" onClick={close}>
            Cancel
          </button>
          <button type="submit" class={one.danger ? "danger" : "primary"} disabled={busy}>
            {one.action}
          </button>
        </div>
      </form>
    </Modal>
  );
}
