"""The pages' style sheet, and the policy that lets a browser use it and nothing else."""

from __future__ import annotations

import base64
import hashlib

STYLE = """
:root { color-scheme: light dark; --ink: #1d2433; --soft: #5d677a; --line: #dde2ea;
  --page: #f6f7f9; --card: #fff; --accent: #0b62c4; --mark: #e7f0fb; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e8f0; --soft: #98a2b5; --line: #2c3442;
  --page: #12161d; --card: #1a202a; --accent: #74b0f4; --mark: #1f3148; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink);
  font: 16px/1.5 system-ui, sans-serif; }
header, main { max-width: 68rem; margin: 0 auto; padding: 1rem; }
header { display: flex; align-items: center; justify-content: space-between; }
header a { color: inherit; font-weight: 700; text-decoration: none; }
h1 { font-size: 1.4rem; margin: .5rem 0 1rem; overflow-wrap: anywhere; }
h2 { font-size: 1.05rem; margin: 1.8rem 0 .6rem; }
a { color: var(--accent); }
.card { background: var(--card); border: 1px solid var(--line); border-radius: .6rem;
  padding: 1rem; overflow-x: auto; }
table { width: 100%; border-collapse: collapse; }
th { text-align: left; color: var(--soft); font-weight: 500; font-size: .85rem; }
th, td { padding: .4rem .8rem .4rem 0; border-bottom: 1px solid var(--line);
  overflow-wrap: anywhere; }
tr:last-child td { border-bottom: 0; }
th.number, td.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
code, pre, .graph { font-family: ui-monospace, monospace; font-size: .9rem; }
pre { overflow-x: auto; background: var(--mark); border-radius: .4rem; padding: .8rem; }
.graph { white-space: pre; color: var(--soft); line-height: 1.2; }
.soft { color: var(--soft); }
.note { background: var(--mark); border-radius: .3rem; padding: .05rem .45rem; margin-right: .3rem;
  font-size: .85rem; white-space: nowrap; }
button, input { font: inherit; padding: .4rem .8rem; border-radius: .4rem;
  border: 1px solid var(--line); background: var(--card); color: inherit; }
button { cursor: pointer; }
form.login { max-width: 26rem; margin: 15vh auto 0; display: grid; gap: .8rem; }
@media (max-width: 40rem) {
  table.cards thead { display: none; }
  table.cards tr { display: block; padding: .5rem 0; border-bottom: 1px solid var(--line); }
  table.cards tr:last-child { border-bottom: 0; }
  table.cards td { display: flex; justify-content: space-between; gap: 1rem; border: 0;
    padding: .1rem 0; text-align: right; }
  table.cards td:empty { display: none; }
  table.cards td::before { content: attr(data-label); color: var(--soft); font-size: .85rem; }
}
"""

_DIGEST = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()

# Nothing may be loaded, run or framed; the one inline style sheet is named by its hash.
POLICY = (
    f"default-src 'none'; style-src 'sha256-{_DIGEST}'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
