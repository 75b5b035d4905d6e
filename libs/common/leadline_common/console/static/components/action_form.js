// An action of the API: its fields, the lines that do the same elsewhere, a dry run, a
// confirmation, and what became of it.
//
//   const deleteTopic = (topic) => ({
//     operation: "delete_topic",            // its id in the API: decides who may do it
//     on: { topic },                        // what it is done to, for rights on names
//     title: `Delete ${topic}`,
//     about: "All its records are lost.",
//     fields: [],                           // see Field below
//     request: (values, dryRun) => ({ method: "DELETE", path: `/v1/topics/${encodeURIComponent(topic)}` }),
//     cli: (values, dryRun) => ["topics", "delete", named(topic), "--yes"],
//     input: (values) => "printf … | ",     // what the command reads, if it does
//     dryRun: false,                        // whether the API has a dry run of it
//     safe: false,                          // whether it needs no confirmation: it changes nothing
//     danger: true,
//     confirm: (values) => `Delete ${topic} with all its records?`,
//     aside: (values) => html`…`,           // what follows from the values, below the fields
//     show: (body) => html`…`,              // an answer, of a dry run, too; else it is shown as JSON
//     next: (body) => ({ to: `/tasks/${body.id}`, text: "Follow the task" }),
//     done: (body) => refresh("/v1/tasks"), // after a success
//   });
//   html`<${ActionButton} action=${deleteTopic(name)}>Delete …<//>`

import { html, signal, useEffect, useState } from "../lib/dom.js";
import { send } from "../lib/api.js";
import { cliLine, curlLine } from "../lib/commands.js";
import { Link, location } from "../lib/router.js";
import { may, me } from "../store/me.js";
import { announce } from "./announcer.js";
import { CopyLine } from "./copy_line.js";
import { Dialog } from "./dialog.js";
import { Field, problemOf, valuesOf } from "./field.js";
import { Failure, Notice } from "./notice.js";

/** The action whose form is open, and the page it was opened on. */
const opened = signal(null);

/**
 * A button that opens the form of an action in a dialog. It is disabled, with the reason, without the
 * right, and while something is `missing` that the form is made of: an open form does not follow it.
 */
export function ActionButton({ action, missing = "", children, ...rest }) {
  const why = may(action.operation, action.on) || (missing && `${missing} are not known yet`);
  const open = () => { opened.value = { action, path: location.value.path }; };
  return html`<button type="button" aria-disabled=${why ? "true" : undefined} title=${why || undefined} aria-description=${why || undefined}
      onClick=${() => !why && open()} ...${rest}>${children}</button>`;
}

/**
 * The dialog of the action that was opened, once for all pages: a button may be gone, with the row
 * that it is about, before the user has read what became of the action.
 */
export function ActionDialog() {
  const { path } = location.value;
  useEffect(() => { opened.value = null; }, [path]);
  if (!opened.value || opened.value.path !== path) return null;
  const { action } = opened.value;
  return html`<${Dialog} title=${action.title} onClose=${() => { opened.value = null; }}><${ActionForm} action=${action} /><//>`;
}

/** The form itself, where a page has room for it. */
export function ActionForm({ action }) {
  const [values, setValues] = useState(() => valuesOf(action.fields ?? []));
  const [step, setStep] = useState("edit"); // edit | confirm | done
  const [tried, setTried] = useState(null); // {body} | {error}, of the dry run
  const [answer, setAnswer] = useState(null); // likewise, of the action
  const [busy, setBusy] = useState(false);
  const why = may(action.operation, action.on);
  const fields = (action.fields ?? []).filter((field) => field.when?.(values) ?? true);
  const wrong = fields.some((field) => problemOf(field, values));
  const change = (name, value) => {
    setValues({ ...values, [name]: value });
    setTried(null);
    setStep("edit");
  };
  const run = async (dryRun) => {
    setBusy(true);
    const found = await attempt(action.request(values, dryRun), !dryRun);
    setBusy(false);
    announce(spoken(found, dryRun));
    if (dryRun) {
      setTried(found);
      return;
    }
    setAnswer(found);
    setStep("done");
    if (found.body !== undefined) action.done?.(found.body, values);
  };
  if (step === "done") return html`<${Outcome} action=${action} answer=${answer} again=${() => { setAnswer(null); setTried(null); setStep("edit"); }} />`;
  const ask = (event) => {
    event.preventDefault();
    if (why || wrong || busy) return;
    if (action.safe) void run(false);
    else setStep("confirm");
  };
  return html`<form class="form" onSubmit=${ask} novalidate>
    ${action.about && html`<p class="muted">${action.about}</p>`}
    ${why && html`<${Notice} tone="warn" title="Not allowed">${why}<//>`}
    <div class="fields">${fields.map((field) => html`<${Field} key=${field.name} field=${field} values=${values} onChange=${change} />`)}</div>
    ${action.aside?.(values)}
    ${!wrong && html`<${SameLines} action=${action} values=${values} />`}
    ${tried && html`<div class="form" role="group" aria-label="Result of the dry run">${tried.error ? html`<${Failure} error=${tried.error} wrote />` : html`<${Notice} title="Dry run: nothing was changed"><${Answer} action=${action} body=${tried.body} /><//>`}</div>`}
    ${step === "confirm" && html`<${Notice} tone="warn" live title="Please confirm">${action.confirm?.(values) ?? `${action.title}?`}<//>`}
    <div class="buttons">
      ${action.dryRun && html`<button type="button" aria-disabled=${why || wrong || busy ? "true" : undefined} aria-description=${why || undefined} onClick=${() => !why && !wrong && !busy && run(true)}>Try (dry run)</button>`}
      ${step === "confirm"
        ? html`<button type="button" class=${action.danger ? "danger" : "primary"} aria-disabled=${busy ? "true" : undefined} onClick=${() => !busy && run(false)}>${busy ? "Working …" : `Yes, ${lower(action.verb ?? action.title)}`}</button>
            <button type="button" onClick=${() => setStep("edit")}>No, go back</button>`
        : html`<button type="submit" class=${action.danger ? "danger" : "primary"} aria-disabled=${why || wrong || busy ? "true" : undefined} aria-description=${why || undefined}>${action.verb ?? action.title}${action.safe ? "" : " …"}</button>`}
    </div>
  </form>`;
}

const lower = (text) => text.charAt(0).toLowerCase() + text.slice(1);

async function attempt(request) {
  try {
    return await send(request);
  } catch (error) {
    return { error };
  }
}

function spoken(found, dryRun) {
  if (found.error) return `${found.error.outcome === "unknown" ? "Outcome unknown" : "Refused"}: ${found.error.message}`;
  return dryRun ? "The dry run succeeded; nothing was changed" : "Done";
}

function SameLines({ action, values }) {
  const authenticated = me.value?.authenticated ?? false;
  const words = action.cli?.(values, false); // null: no line of the command does this
  return html`<div class="same" role="group" aria-label="The same from a terminal">
    <${CopyLine} name="curl line" text=${curlLine(action.request(values, false), authenticated)} />
    ${words && html`<${CopyLine} name="command line" text=${(action.input?.(values) ?? "") + cliLine(words)} />`}
  </div>`;
}

function Outcome({ action, answer, again }) {
  if (answer.error) {
    return html`<${Failure} error=${answer.error} wrote /><div class="buttons"><button type="button" onClick=${again}>Go back</button></div>`;
  }
  const next = action.next?.(answer.body);
  return html`<${Notice} tone="good" live title=${answer.status === 202 ? "Accepted: it goes on in the background" : "Done"}>
      <${Answer} action=${action} body=${answer.body} /><//>
    <p class="buttons">${action.safe && html`<button type="button" onClick=${again}>Change it</button>`}${next && html`<${Link} to=${next.to}>${next.text}<//>`}
      ${answer.causeId && html`<${Link} to=${`/history?cause=${encodeURIComponent(answer.causeId)}`}>Its entry in the audit<//>`}</p>`;
}

function Answer({ action, body }) {
  return action.show ? action.show(body) : html`<pre>${JSON.stringify(body, null, 2)}</pre>`;
}
