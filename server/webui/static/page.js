// Keeps a page up to date: it is requested again each second, and what differs is
// changed in place. Without this script the page shows the same, as of when it
// was loaded. The answer to a posted form is not kept up to date: it has no #live.

const status = document.getElementById("live");
const refresh = document.getElementById("refresh");

const interval = 1000; // between two requests, in milliseconds
const pause = 3000; // after a failed one
const timeout = 10_000; // of a request

let tag = ""; // of the page as it is shown
let timer; // of the next request
let gone = false; // the server does not have the page any longer

function say(text) {
	if (status.textContent !== text) status.textContent = text;
	refresh.hidden = text === "Live";
	status.classList.toggle("cut", text !== "Live"); // what is shown gets old
}

// morph makes a node like another one, and changes only what differs: what has
// the focus, is selected, or is being clicked stays what it was.
function morph(is, want) {
	if (is.nodeName !== want.nodeName) {
		is.replaceWith(want);
		return;
	}
	if (is.nodeType !== Node.ELEMENT_NODE) {
		if (is.data !== want.data) is.data = want.data;
		return;
	}
	for (const { name } of [...is.attributes]) {
		if (name === "open") continue; // what is opened stays open
		if (!want.hasAttribute(name)) is.removeAttribute(name);
	}
	for (const { name, value } of want.attributes) {
		if (is.getAttribute(name) !== value) is.setAttribute(name, value);
	}
	morphChildren(is, want);
}

// morphChildren finds those with an id again, wherever they are now.
function morphChildren(is, want) {
	const known = new Map();
	for (const child of is.children) if (child.id) known.set(child.id, child);
	let at = is.firstChild; // all before it are as wanted
	for (const child of [...want.childNodes]) {
		const alike = at && !at.id && at.nodeName === child.nodeName ? at : undefined;
		const same = child.id ? known.get(child.id) : alike;
		if (!same) {
			is.insertBefore(child, at);
			continue;
		}
		if (same === at) at = at.nextSibling;
		else is.insertBefore(same, at);
		morph(same, child);
	}
	while (at) {
		const old = at;
		at = at.nextSibling;
		old.remove();
	}
}

// update requests the page, and shows it as it is now. Nothing in the HTML runs:
// the policy of the page allows no script but this file.
async function update() {
	const headers = tag ? { "If-None-Match": tag } : {};
	const answer = await fetch(location.href, { headers, cache: "no-store", signal: AbortSignal.timeout(timeout) });
	gone = answer.status === 404;
	if (gone) return say("Gone: the server no longer has it");
	if (!answer.ok && answer.status !== 304) throw new Error(answer.statusText);

	if (answer.ok) {
		const want = new DOMParser().parseFromString(await answer.text(), "text/html");
		// The server was replaced in the meantime, and its pages have another form.
		if (want.documentElement.dataset.build !== document.documentElement.dataset.build) return location.reload();
		document.title = want.title;
		morph(document.getElementById("main"), want.getElementById("main"));
		tag = answer.headers.get("ETag");
	}
	say("Live");
}

// follow updates the page until it is hidden: nobody sees it then.
async function follow() {
	clearTimeout(timer);
	if (document.hidden || gone) return;
	let wait = interval;
	try {
		await update();
	} catch {
		say("Not connected, trying again");
		wait = pause;
	}
	clearTimeout(timer);
	timer = setTimeout(follow, wait);
}

// copy copies what a button is for. A page that was not loaded over TLS or from this
// machine has no clipboard: then the text is selected.
async function copy(button) {
	try {
		await navigator.clipboard.writeText(button.dataset.copy);
		button.classList.add("done");
		setTimeout(() => button.classList.remove("done"), 2000);
	} catch {
		getSelection().selectAllChildren(button.previousElementSibling);
	}
}

document.documentElement.classList.add("script"); // what needs it is shown
document.addEventListener("click", (e) => {
	const button = e.target.closest?.(".copy");
	if (button) copy(button);
});
if (status) {
	document.addEventListener("visibilitychange", follow);
	addEventListener("pageshow", follow); // also once it is loaded
	addEventListener("pagehide", () => clearTimeout(timer));
}
