/** What stands around every view: the bar on top, the state of the connection, the help. */

import type { ComponentChildren } from "preact";
import { enabled, helpOpen, SHORTCUTS, setEnabled } from "../keys";
import { link, trouble } from "../live";
import { route } from "../route";
import { setTheme, type Theme, theme } from "../theme";
import { Dialogs, Modal } from "./dialogs";
import { Link } from "./links";
import { Toasts } from "./toasts";

const NEXT: Record<Theme, Theme> = { system: "light", light: "dark", dark: "system" };
const WORDS = { connecting: "connecting", live: "live", lost: "the server is away" };

export function Shell({ children }: { children: ComponentChildren }) {
  const view = route.value.view;
  return (
    <>
      <a class="skip" href="#main">
        Skip to the content
      </a>
      <header class="top">
        <Link to={{ view: "subjects" }} class="brand">
          <Logo /> Holdfast
        </Link>
        <nav aria-label="Views">
          <Link to={{ view: "subjects" }} current={view === "subjects"}>
            Subjects
          </Link>
          <Link to={{ view: "run" }} current={view === "run" || view === "console"}>
            Run
          </Link>
          <Link to={{ view: "store" }} current={view === "store"}>
            Store
          </Link>
        </nav>
        <span class={`link ${link.value}`} role="status">
          {WORDS[link.value]}
        </span>
        <button
          type="button"
          class="plain icon"
          aria-label={`Colours: ${theme.value}`}
          title={`Colours: ${theme.value}`}
          onClick={() => setTheme(NEXT[theme.value])}
        >
          {theme.value === "dark" ? "☾" : theme.value === "light" ? "☀" : "◐"}
        </button>
        <button
          type="button"
          class="plain icon"
          aria-label="Help and shortcuts"
          onClick={() => {
            helpOpen.value = true;
          }}
        >
          ?
        </button>
        <form method="post" action="/logout">
          <button type="submit" class="plain">
            Log out
          </button>
        </form>
      </header>
      {trouble.value && (
        <div class="banner" role="alert">
          {trouble.value.message}
          {trouble.value.hint && <> ({trouble.value.hint})</>}
        </div>
      )}
      <main id="main" tabIndex={-1}>
        {children}
      </main>
      <Toasts />
      <Dialogs />
      {helpOpen.value && <Help />}
    </>
  );
}

function Logo() {
  return (
    <svg viewBox="0 0 32 32" width="22" height="22" aria-hidden="true" class="logo">
      <path d="M10 6v20M10 16c0-6 12-3 12-9" />
      <circle cx="10" cy="6" r="4" />
      <circle cx="10" cy="26" r="4" />
      <circle cx="22" cy="7" r="4" class="other" />
    </svg>
  );
}

function Help() {
  const close = () => {
    helpOpen.value = false;
  };
  return (
    <Modal label="Help" onClose={close}>
      <h2>Keys</h2>
      <dl class="keys">
        {SHORTCUTS.map(([keys, what]) => (
          <div key={keys}>
            <dt>
              <kbd>{keys}</kbd>
            </dt>
            <dd>{what}</dd>
          </div>
        ))}
      </dl>
      <label class="inline">
        <input
          type="checkbox"
          checked={enabled.value}
          onChange={(event) => setEnabled(event.currentTarget.checked)}
        />
        <span>shortcuts of single keys</span>
      </label>
      <h2>Words</h2>
      <p class="soft">
        A <b>subject</b> is a thing with state, a <b>checkpoint</b> one moment of it. Its{" "}
        <b>head</b> is the checkpoint that it now descends from. A <b>rollback</b> moves the head on
        to a new checkpoint with old content; a <b>fork</b> begins a new subject.
      </p>
      <div class="buttons end">
        <button type="button" class="primary" onClick={close}>
          Close
        </button>
      </div>
    </Modal>
  );
}
