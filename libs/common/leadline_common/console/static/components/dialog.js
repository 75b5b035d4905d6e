// A modal dialog: the browser keeps the focus in it, and Escape closes it.
//
//   ${open && html`<${Dialog} title="Delete orders" onClose=${() => setOpen(false)}>…<//>`}

import { html, useEffect, useId, useRef } from "../lib/dom.js";

/** @param {{title: string, onClose: () => void, children: any}} props */
export function Dialog({ title, onClose, children }) {
  const dialog = useRef(null);
  const id = useId();
  useEffect(() => {
    const before = document.activeElement;
    dialog.current.showModal();
    return () => before?.focus?.();
  }, []);
  return html`<dialog ref=${dialog} aria-labelledby=${id} onClose=${onClose}>
    <div class="dialog-head"><h2 id=${id}>${title}</h2>
      <button type="button" class="plain" onClick=${() => dialog.current.close()}>Close</button></div>
    <div class="dialog-body">${children}</div>
  </dialog>`;
}
