// Conveniences; every page works without this script.
"use strict";

function addCopyButtons() {
  if (!navigator.clipboard) return;
  for (const code of document.querySelectorAll("pre[data-copy]")) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "quiet copy";
    button.textContent = "Copy";
    button.setAttribute("aria-live", "polite");
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(code.textContent);
      button.textContent = "Copied";
      setTimeout(() => (button.textContent = "Copy"), 1500);
    });
    code.before(button);
  }
}

// Shows the content of a namespace below its link.
function addToggles(list) {
  for (const item of list.querySelectorAll(":scope > li.namespace")) {
    const link = item.querySelector("a");
    const button = document.createElement("button");
    button.type = "button";
    button.className = "toggle";
    button.setAttribute("aria-expanded", "false");
    button.setAttribute("aria-label", `Show the content of ${link.textContent}`);
    button.addEventListener("click", () => toggle(item, link, button));
    item.prepend(button);
  }
}

async function toggle(item, link, button) {
  const isOpen = button.getAttribute("aria-expanded") === "true";
  button.setAttribute("aria-expanded", String(!isOpen));
  let content = item.querySelector(":scope > .content");
  if (content) {
    content.hidden = isOpen;
    return;
  }
  content = document.createElement("div");
  content.className = "content";
  content.textContent = "Loading";
  item.append(content);
  try {
    const response = await fetch(link.href, { credentials: "same-origin" });
    if (!response.ok) throw new Error(`status ${response.status}`);
    const page = new DOMParser().parseFromString(await response.text(), "text/html");
    const parts = page.querySelectorAll("ul.names, nav.pages, main .error");
    content.replaceChildren(...(parts.length ? parts : ["Empty"]));
    content.querySelectorAll(":scope > ul.names").forEach(addToggles);
  } catch (error) {
    content.textContent = `Not available (${error.message}); open the namespace to see the reason.`;
  }
}

// Runs the statement on Ctrl+Enter and on Command+Enter.
for (const text of document.querySelectorAll("form.sql textarea")) {
  text.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) text.form.requestSubmit();
  });
}

addCopyButtons();
if (!location.pathname.startsWith("/ui/search")) document.querySelectorAll("ul.names").forEach(addToggles);
