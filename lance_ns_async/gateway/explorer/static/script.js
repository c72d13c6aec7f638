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

// The tree at the left: the content of a namespace is read when it is opened, and kept for a minute.
const LIFETIME = 60_000;

async function readLevel(href) {
  const kept = JSON.parse(sessionStorage.getItem(href) ?? "null");
  if (kept && Date.now() - kept.time < LIFETIME) return kept.items;
  const response = await fetch(href, { credentials: "same-origin" });
  if (!response.ok || response.redirected) throw new Error(`status ${response.status}`);
  const page = new DOMParser().parseFromString(await response.text(), "text/html");
  const links = page.querySelectorAll("main .names a, main .tables th a, main .pages a[rel=next]");
  const items = [...links].map((link) => {
    const url = new URL(link.getAttribute("href"), location.origin);
    return { href: url.pathname + url.search, text: link.rel === "next" ? "More" : link.textContent };
  });
  const error = page.querySelector("main .error");
  if (error && !items.length) throw new Error(error.textContent.trim());
  sessionStorage.setItem(href, JSON.stringify({ time: Date.now(), items }));
  return items;
}

// `path` has the links of the namespaces and the table that are shown, which are opened.
async function showLevel(container, href, path) {
  container.textContent = "Loading";
  try {
    const items = await readLevel(href);
    const list = document.createElement("ul");
    list.className = "names";
    list.append(...items.map((item) => treeItem(item, path)));
    container.replaceChildren(items.length ? list : "Empty");
  } catch (error) {
    container.textContent = `Not available (${error.message})`;
  }
}

function treeItem({ href, text }, path) {
  const item = document.createElement("li");
  const link = document.createElement("a");
  link.href = href;
  link.textContent = text;
  item.append(link);
  const isNamespace = href.startsWith("/ui/namespace?") && !/[?&](tables|namespaces)=/.test(href);
  item.className = isNamespace ? "namespace" : href.startsWith("/ui/table?") ? "table" : "more";
  const here = new URLSearchParams(location.search).getAll("id").join("\n");
  const own = new URLSearchParams(href.split("?")[1]).getAll("id").join("\n");
  if (own === here && item.className !== "more") link.setAttribute("aria-current", "page");
  if (isNamespace) addToggle(item, link, path);
  return item;
}

function addToggle(item, link, path) {
  const button = document.createElement("button");
  const content = document.createElement("div");
  button.type = "button";
  button.className = "toggle";
  button.setAttribute("aria-label", `Show the content of ${link.textContent}`);
  content.className = "content";
  item.prepend(button);
  item.append(content);
  const href = link.getAttribute("href");
  const open = (isOpen) => {
    button.setAttribute("aria-expanded", String(isOpen));
    content.hidden = !isOpen;
    if (isOpen && !content.childNodes.length) showLevel(content, href, path);
  };
  button.addEventListener("click", () => open(content.hidden));
  open(path.includes(href));
}

function showTree(tree) {
  const ids = new URLSearchParams(tree.dataset.open).getAll("id");
  const path = ids.map((_, i) => `/ui/namespace?${new URLSearchParams(ids.slice(0, i + 1).map((id) => ["id", id]))}`);
  const content = document.createElement("div");
  const box = document.createElement("details");
  const title = document.createElement("summary");
  title.textContent = tree.getAttribute("aria-label");
  box.append(title, content);
  tree.append(matchMedia("(max-width: 40rem)").matches ? box : content);
  showLevel(content, "/ui/namespace", path);
}

// A field that hides the rows or the labels without its text.
function addFilters() {
  for (const part of document.querySelectorAll("[data-filter]")) {
    const field = document.createElement("input");
    field.type = "search";
    field.className = "filter";
    field.placeholder = part.dataset.filter;
    field.setAttribute("aria-label", part.dataset.filter);
    field.addEventListener("input", () => {
      const text = field.value.toLowerCase();
      for (const it of part.querySelectorAll("tbody tr, label")) {
        const name = it.querySelector("th, bdi") ?? it;
        it.hidden = !name.textContent.toLowerCase().includes(text);
      }
    });
    part.before(field);
  }
}

// Runs the statement on Ctrl+Enter and on Command+Enter.
for (const text of document.querySelectorAll("form.sql textarea")) {
  text.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) text.form.requestSubmit();
  });
}

// A table that is brought back is new in the tree.
for (const form of document.querySelectorAll("form[action='/ui/undrop']")) {
  form.addEventListener("submit", () => sessionStorage.clear());
}

addCopyButtons();
addFilters();
const tree = document.querySelector("nav.tree");
if (tree) showTree(tree);
else sessionStorage.clear();
