// Keeps a page as it would be if it were loaded anew: the server sends the
// elements that have changed, as HTML, and they are put in their places. Without
// this script the page shows the same, as of when it was loaded.

const status = document.getElementById("live");
const refresh = document.getElementById("refresh");

let source; // of events; undefined while nobody looks at the page
let again; // the timer of the next try

function say(text) {
	if (status.textContent !== text) status.textContent = text;
	refresh.hidden = text === "Live";
	status.classList.toggle("cut", text !== "Live"); // what is shown gets old
}

// parse makes an element of HTML. Nothing in it runs: the policy of the page
// allows no script but this file.
function parse(html) {
	const template = document.createElement("template");
	template.innerHTML = html;
	return template.content;
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
		if (!want.hasAttribute(name)) is.removeAttribute(name);
	}
	for (const { name, value } of want.attributes) {
		if (is.getAttribute(name) !== value) is.setAttribute(name, value);
	}
	morphChildren(is, want);
}

// morphChildren finds those with an id again, wherever they are by now.
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
		const gone = at;
		at = at.nextSibling;
		gone.remove();
	}
}

function put({ id, html }) {
	const is = document.getElementById(id);
	const want = parse(html).firstElementChild;
	if (is && want) morph(is, want);
}

function open() {
	if (source || document.hidden) return;
	clearTimeout(again);
	source = new EventSource(location.pathname + location.search);
	source.addEventListener("hello", (event) => {
		// The server was replaced in the meantime, whose pages are made otherwise.
		if (JSON.parse(event.data) !== document.documentElement.dataset.build) location.reload();
		say("Live");
	});
	source.addEventListener("put", (event) => put(JSON.parse(event.data)));
	source.addEventListener("gone", () => {
		close();
		say("Gone: the server does not have it any longer");
	});
	source.addEventListener("error", () => {
		say("Not connected, trying again");
		if (source?.readyState !== EventSource.CLOSED) return; // it tries by itself
		close();
		again = setTimeout(open, 3000);
	});
}

function close() {
	clearTimeout(again);
	source?.close();
	source = undefined;
}

// Nobody sees a page in the background, and a browser has few connections to
// one server.
document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
addEventListener("pagehide", close);
addEventListener("pageshow", open);
open();
