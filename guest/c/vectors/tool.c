/* The fixture plugin of the contract vectors; abi/testdata/README.md says what each tool does. */
#include "../toolhost.h"

TOOLHOST_PLUGIN({"name": "vectors", "version": "1.0.0", "description": "Does what the contract vectors ask for."})

static const char *text_of(th_value object, const char *key) { return th_string(th_get(object, key), "").p; }

/* maybe ends with the tool error that the arguments have, if they have one. */
static int maybe(th_value args) {
	th_str error = th_string(th_get(args, "error"), NULL);
	return error.p ? th_fail(error.p) : TH_OK;
}

/* codes writes {"codes": [, which the caller fills. */
static th_json *codes(void) {
	th_json *result = th_result();
	th_put_object(result, NULL);
	th_put_array(result, "codes");
	return result;
}

/* put_answer writes how an operation has ended. */
static void put_answer(th_json *j, const char *member, th_op *op) {
	th_put_object(j, NULL);
	if (op->code < 0) th_put_value(j, "failure", th_get(op->response, "code"));
	else th_put_value(j, "response", member ? th_get(op->response, member) : op->response);
	th_end(j);
}

TOOLHOST_TOOL(echo, {
	"description": "Returns its value.",
	"input_schema": {"type": "object", "properties": {"value": {}}, "required": ["value"]}
}) {
	th_value v = th_get(args, "value");
	if (th_type_of(v) == TH_STRING) th_put_str(th_result(), NULL, th_string(v, NULL));
	else th_put_value(th_result(), NULL, v);
	return TH_OK;
}

TOOLHOST_TOOL(nothing, {"description": "Has no result.", "input_schema": {"type": "object"}}) { return TH_OK; }

TOOLHOST_TOOL(parts, {
	"description": "Writes its result in parts.",
	"input_schema": {"type": "object", "properties": {"parts": {"type": "array", "items": {"type": "string"}}, "error": {"type": "string"}}}
}) {
	for (th_iter i = th_each(th_get(args, "parts")); th_next(&i);) {
		th_str part = th_string(i.value, "");
		th_write(TH_RESULT, part.p, part.n);
	}
	return maybe(args);
}

TOOLHOST_TOOL(fail, {
	"description": "Ends with a tool error.",
	"input_schema": {"type": "object", "properties": {"text": {"type": "string"}}}
}) { return th_fail(text_of(args, "text")); }

TOOLHOST_TOOL(panic, {
	"description": "Panics.",
	"input_schema": {"type": "object", "properties": {"text": {"type": "string"}}}
}) { th_panic(text_of(args, "text")); }

TOOLHOST_TOOL(connect, {
	"description": "Requires a connection.",
	"input_schema": {"type": "object", "properties": {"provider": {"type": "string"}, "subject": {"type": "string"}, "setup_url": {"type": "string"}}}
}) { return th_connect(text_of(args, "provider"), th_string(th_get(args, "subject"), NULL).p, th_string(th_get(args, "setup_url"), NULL).p); }

TOOLHOST_TOOL(output, {
	"description": "Writes live output.",
	"input_schema": {"type": "object", "properties": {"writes": {"type": "array"}}}
}) {
	for (th_iter i = th_each(th_get(args, "writes")); th_next(&i);) {
		th_str text = th_string(th_get(i.value, "text"), "");
		th_write(th_is(th_get(i.value, "to"), "stderr") ? TH_ERROR_OUTPUT : TH_OUTPUT, text.n ? text.p : NULL, text.n);
	}
	return TH_OK;
}

TOOLHOST_TOOL(print, {
	"description": "Writes live output through WASI.",
	"input_schema": {"type": "object", "properties": {"writes": {"type": "array"}}}
}) {
	for (th_iter i = th_each(th_get(args, "writes")); th_next(&i);)
		fprintf(th_is(th_get(i.value, "to"), "stderr") ? stderr : stdout, "%s", text_of(i.value, "text"));
	return TH_OK;
}

TOOLHOST_TOOL(progress, {
	"description": "Reports progress.",
	"input_schema": {"type": "object", "properties": {"steps": {"type": "array"}}}
}) {
	th_json *result = codes();
	for (th_iter i = th_each(th_get(args, "steps")); th_next(&i);)
		th_put_int(result, NULL, th_progress(th_number(th_get(i.value, "done"), 0), th_number(th_get(i.value, "total"), -1), th_string(th_get(i.value, "message"), NULL).p));
	return TH_OK;
}

TOOLHOST_TOOL(content, {
	"description": "Writes content blocks.",
	"input_schema": {"type": "object", "properties": {"blocks": {"type": "array"}, "error": {"type": "string"}, "why": {"type": "boolean"}}}
}) {
	th_json *result = codes(), why = {0};
	th_put_array(&why, NULL);
	for (th_iter i = th_each(th_get(args, "blocks")); th_next(&i);) {
		th_json block = {0};
		th_put_value(&block, NULL, i.value);
		int code = th_content(&block);
		th_put_int(result, NULL, code);
		if (code < 0) {
			th_str reason = th_field(TH_RESPONSE);
			th_put_value(&why, NULL, th_get(th_parse(reason.p, reason.n), "message"));
		}
	}
	th_end(result);
	th_end(&why);
	if (th_bool(th_get(args, "why"), false)) th_put_value(result, "why", th_parse(why.p, why.n));
	return maybe(args);
}

TOOLHOST_TOOL(log, {
	"description": "Writes log records.",
	"input_schema": {"type": "object", "properties": {"records": {"type": "array"}}}
}) {
	for (th_iter i = th_each(th_get(args, "records")); th_next(&i);) {
		th_value level = th_get(i.value, "level");
		th_log(th_is(level, "debug") ? TH_LOG_DEBUG : th_is(level, "info") ? TH_LOG_INFO : th_is(level, "warn") ? TH_LOG_WARN : TH_LOG_ERROR, text_of(i.value, "message"));
	}
	return TH_OK;
}

TOOLHOST_TOOL(write, {
	"description": "Writes to a stream by its number.",
	"input_schema": {"type": "object", "properties": {"stream": {"type": "integer"}, "text": {"type": "string"}}}
}) {
	th_str text = th_string(th_get(args, "text"), "");
	th_put_int(codes(), NULL, th_write((int)th_int(th_get(args, "stream"), 0), text.p, text.n));
	return TH_OK;
}

TOOLHOST_TOOL(facts, {"description": "Returns the facts of the call.", "input_schema": {"type": "object"}}) {
	th_json *result = th_result();
	th_put_object(result, NULL);
	th_put_str(result, "tool", th_field(TH_TOOL));
	static const char *const names[] = {"session", "attempt", "locale", "config"};
	for (int i = 0; i < 4; i++) th_put_value(result, names[i], th_get(th_context(), names[i]));
	return TH_OK;
}

TOOLHOST_TOOL(script, {"description": "Tells whether there is a script.", "input_schema": {"type": "object"}}) {
	th_put_object(th_result(), NULL);
	th_put_bool(th_result(), "absent", !th_field(TH_SCRIPT).p);
	return TH_OK;
}

TOOLHOST_TOOL(host, {
	"description": "Uses a host capability.",
	"input_schema": {"type": "object", "properties": {"op": {"type": "string"}, "request": {}}}
}) {
	th_json request = {0};
	th_put_value(&request, NULL, th_get(args, "request"));
	put_answer(th_result(), NULL, th_do(text_of(args, "op"), &request));
	return TH_OK;
}

TOOLHOST_TOOL(report, {
	"description": "Reports on itself.",
	"input_schema": {"type": "object", "properties": {"reports": {"type": "array"}, "error": {"type": "string"}}}
}) {
	static const char *const texts[] = {"status", "unit", "summary"};
	for (th_iter i = th_each(th_get(args, "reports")); th_next(&i);) {
		int k = 0;
		while (k < 3 && !th_get(i.value, texts[k]).json) k++;
		if (k == 3) {
			th_progress(th_number(th_get(i.value, "done"), 0), th_number(th_get(i.value, "total"), 0), NULL);
			continue;
		}
		th_json request = {0};
		th_put_object(&request, NULL);
		th_put_value(&request, texts[k], th_get(i.value, texts[k]));
		th_op *op = th_do("report", &request);
		if (op->code < 0) return th_fail_op(op);
	}
	return maybe(args);
}

TOOLHOST_TOOL(receive, {
	"description": "Receives messages.",
	"input_schema": {"type": "object", "properties": {"count": {"type": "integer"}}},
	"hints": {"messages": true}
}) {
	th_value after = {0};
	th_put_array(th_result(), NULL);
	for (int64_t n = th_int(th_get(args, "count"), 0); n > 0; n--) {
		th_json request = {0};
		th_put_object(&request, NULL);
		if (after.json) th_put_value(&request, "after", after);
		th_put_int(&request, "wait_ms", 0);
		th_op *op = th_do("messages.receive", &request);
		if (op->code < 0) return th_fail_op(op);

		th_iter messages = th_each(th_get(op->response, "messages"));
		bool any = th_next(&messages);
		if (any) after = th_get(messages.value, "id");
		th_put_value(th_result(), NULL, any ? th_get(messages.value, "message") : (th_value){0});
	}
	return TH_OK;
}

TOOLHOST_TOOL(session, {
	"description": "Uses the values of the session.",
	"input_schema": {"type": "object", "properties": {"steps": {"type": "array"}}}
}) {
	th_json *result = th_result();
	th_put_array(result, NULL);
	for (th_iter i = th_each(th_get(args, "steps")); th_next(&i);) {
		static const char *const names[] = {"key", "value", "version"};
		th_value what = th_get(i.value, "do");
		th_json request = {0};
		th_put_object(&request, NULL);
		for (int k = 0; k < 3; k++)
			if (th_get(i.value, names[k]).json) th_put_value(&request, names[k], th_get(i.value, names[k]));
		th_op *op = th_do(th_format("session.%s", th_string(what, "").p), &request);

		if (op->code >= 0 && th_is(what, "get")) {
			th_put_object(result, NULL);
			th_put_object(result, "response");
			th_put_int(result, "version", th_int(th_get(op->response, "version"), 0));
			th_put_value(result, "value", th_get(op->response, "value"));
			th_end(result);
			th_end(result);
		} else {
			bool version = th_is(what, "set") && th_get(i.value, "version").json;
			put_answer(result, version ? "version" : th_is(what, "list") ? "values" : "none", op);
		}
	}
	return TH_OK;
}

TOOLHOST_TOOL(stop, {
	"description": "Reports progress until it is stopped.",
	"input_schema": {"type": "object", "properties": {"finish": {"type": "boolean"}}}
}) {
	for (int i = 0; i < 1 << 20; i++) {
		if (th_progress(i, -1, NULL) != 1) continue;
		if (th_print("stopping\n") != 1) return th_fail("output after the stop was not told of it");
		if (!th_bool(th_get(args, "finish"), false)) return th_fail("canceled");
		th_put_string(th_result(), NULL, "finished");
		return TH_OK;
	}
	return th_fail("never stopped");
}

TOOLHOST_TOOL(exit, {
	"description": "Exits.",
	"input_schema": {"type": "object", "properties": {"code": {"type": "integer"}}}
}) { exit((int)th_int(th_get(args, "code"), 0)); }

TOOLHOST_TOOL(state, {"description": "Counts the calls of its instance.", "input_schema": {"type": "object"}}) {
	static int calls;
	th_put_int(th_result(), NULL, ++calls);
	return TH_OK;
}

/* What the tool wait needs after a wait. */
struct waiting {
	th_value args;
	th_iter rounds;
	struct { th_op *op; bool seen; } ops[64];
	int64_t n; /* of the operations of this round */
};

static int next_round(void *state);

static int seen(void *state) {
	struct waiting *w = state;
	th_json *result = th_result();
	int64_t left = 0;
	bool any = false;
	for (int64_t i = 0; i < w->n; i++) {
		if (w->ops[i].op->done && !w->ops[i].seen) {
			w->ops[i].seen = true;
			if (!th_bool(th_get(w->args, "quiet"), false)) th_print(th_format("%d\n", (int)i));
		}
		left += !w->ops[i].seen;
		any |= w->ops[i].seen;
	}
	bool first = any && th_bool(th_get(w->args, "first"), false);
	if (left && !first) return th_wait_any(seen, w);

	th_put_array(result, NULL);
	for (int64_t i = 0; i < w->n; i++) {
		if (w->ops[i].seen) put_answer(result, NULL, w->ops[i].op);
		else th_put_null(result, NULL);
	}
	th_end(result);
	return first ? TH_OK : next_round(w);
}

static int next_round(void *state) {
	struct waiting *w = state;
	if (!th_next(&w->rounds)) return maybe(w->args);
	w->n = 0;
	for (th_iter i = th_each(w->rounds.value); w->n < 64 && th_next(&i); w->n++) {
		th_json request = {0};
		th_put_value(&request, NULL, th_get(i.value, "request"));
		w->ops[w->n].op = th_start(text_of(i.value, "op"), &request);
		w->ops[w->n].seen = false;
	}
	int64_t k = 0;
	for (th_iter i = th_each(w->rounds.value); k < w->n && th_next(&i); k++)
		if (th_bool(th_get(i.value, "cancel"), false)) th_cancel(w->ops[k].op);
	return seen(w);
}

TOOLHOST_TOOL(wait, {
	"description": "Waits for operations.",
	"input_schema": {
		"type": "object",
		"properties": {
			"rounds": {"type": "array"}, "quiet": {"type": "boolean"}, "first": {"type": "boolean"}, "error": {"type": "string"}
		}
	}
}) {
	struct waiting *w = th_alloc(sizeof *w);
	w->args = args;
	w->rounds = th_each(th_get(args, "rounds"));
	th_put_array(th_result(), NULL);
	return next_round(w);
}

TOOLHOST_TOOL(stuck, {"description": "Waits for nothing.", "input_schema": {"type": "object"}}) { return TH_WAITING; }
