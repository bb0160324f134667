/* Seven tools: arguments, result, error, progress and output, host call, image, a wait. */
#include <ctype.h>

#include "../toolhost.h"

TOOLHOST_PLUGIN({
	"name": "examples",
	"version": "1.0.0",
	"description": "Shows what a tool can do.",
	"needs": {"clock": true, "kv": "write"}
})

TOOLHOST_TOOL(greet, {
	"description": "Greets somebody.",
	"input_schema": {
		"type": "object",
		"properties": {
			"name": {"type": "string", "description": "Whom to greet"},
			"times": {"type": "integer", "minimum": 1, "maximum": 100, "default": 1, "description": "How many times"}
		},
		"required": ["name"],
		"additionalProperties": false
	},
	"hints": {"readonly": true, "idempotent": true, "open_world": false},
	"examples": [{"args": {"name": "Ada", "times": 2}, "result": "Hello, Ada! Hello, Ada!"}]
}) {
	th_str name = th_string(th_get(args, "name"), "");
	const char *greeting = "";
	for (int64_t i = th_int(th_get(args, "times"), 1); i > 0; i--)
		greeting = th_format("%s%sHello, %s!", greeting, *greeting ? " " : "", name.p);
	th_put_string(th_result(), NULL, greeting);
	return TH_OK;
}

TOOLHOST_TOOL(count, {
	"description": "Counts the words of a text.",
	"input_schema": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"], "additionalProperties": false},
	"hints": {"readonly": true, "idempotent": true, "open_world": false},
	"examples": [{"args": {"text": "a bb ccc"}, "result": {"words": 3, "longest": "ccc"}}]
}) {
	th_str text = th_string(th_get(args, "text"), ""), longest = {"", 0};
	int words = 0;
	for (const char *p = text.p, *end = text.p + text.n; p < end;) {
		const char *from = p;
		while (p < end && !isspace((unsigned char)*p)) p++;
		words += p > from;
		if ((size_t)(p - from) > longest.n) longest = (th_str){from, (size_t)(p - from)};
		while (p < end && isspace((unsigned char)*p)) p++;
	}

	th_json *result = th_result();
	th_put_object(result, NULL);
	th_put_int(result, "words", words);
	th_put_str(result, "longest", longest);
	return TH_OK;
}

TOOLHOST_TOOL(sum, {
	"description": "Adds the numbers of a text.",
	"input_schema": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"], "additionalProperties": false},
	"hints": {"readonly": true, "idempotent": true, "open_world": false},
	"examples": [
		{"args": {"text": "1 2.5"}, "result": 3.5},
		{"args": {"text": "1 x"}, "error": "x is not a number"}
	]
}) {
	double sum = 0;
	char *text = (char *)th_string(th_get(args, "text"), "").p;
	for (char *word = strtok(text, " \n\t"), *end; word; word = strtok(NULL, " \n\t")) {
		sum += strtod(word, &end);
		if (*end) return th_fail(th_format("%s is not a number", word)); /* for the model */
	}
	th_put_number(th_result(), NULL, sum);
	return TH_OK;
}

TOOLHOST_TOOL(work, {
	"description": "Works in steps, and reports each.",
	"input_schema": {"type": "object", "properties": {"n": {"type": "integer", "minimum": 0}}, "required": ["n"], "additionalProperties": false},
	"hints": {"readonly": true, "open_world": false},
	"examples": [{"args": {"n": 2}, "result": 2}]
}) {
	int64_t n = th_int(th_get(args, "n"), 0);
	for (int64_t i = 1; i <= n; i++) {
		if (th_progress((double)i, (double)n, "working") == 1) return th_fail("canceled"); /* the call is being stopped */
		printf("step %lld\n", (long long)i);
	}
	th_put_int(th_result(), NULL, n);
	return TH_OK;
}

TOOLHOST_TOOL(visits, {
	"description": "Counts its calls in the key-value store.",
	"input_schema": {"type": "object", "properties": {}, "additionalProperties": false},
	"examples": [{"args": {}, "result": 1}]
}) {
	th_op *got = th_kv_get("visits");
	if (got->code < 0) return th_fail_op(got);
	int64_t n = th_int(th_get(got->response, "value"), 0) + 1;

	th_json value = {0};
	th_put_int(&value, NULL, n);
	th_op *set = th_kv_set("visits", &value);
	if (set->code < 0) return th_fail_op(set);
	th_put_int(th_result(), NULL, n);
	return TH_OK;
}

TOOLHOST_TOOL(square, {
	"description": "Draws a black square.",
	"input_schema": {"type": "object", "properties": {}, "additionalProperties": false},
	"hints": {"readonly": true, "idempotent": true, "open_world": false}
}) {
	/* A bitmap of one pixel: its header, and a pixel with its padding. */
	static const unsigned char bmp[58] = {'B', 'M', 58, [10] = 54, [14] = 40, [18] = 1, [22] = 1, [26] = 1, [28] = 24};
	th_image(bmp, sizeof bmp, "image/bmp");
	return TH_OK;
}

/* What pause needs after its wait. */
struct pause {
	size_t n;
	th_op *sleeps[8];
};

static int paused(void *state) {
	struct pause *p = state;
	for (size_t i = 0; i < p->n; i++)
		if (p->sleeps[i]->code < 0) return th_fail_op(p->sleeps[i]);
	th_put_int(th_result(), NULL, (int64_t)p->n);
	return TH_OK;
}

TOOLHOST_TOOL(pause, {
	"description": "Sleeps several times at once, outside of the plugin.",
	"input_schema": {
		"type": "object",
		"additionalProperties": {"type": "integer", "minimum": 0, "description": "Milliseconds"},
		"maxProperties": 8
	},
	"hints": {"readonly": true, "supports_background": true},
	"examples": [{"args": {"a": 3, "b": 2}, "result": 2}]
}) {
	struct pause *p = th_alloc(sizeof *p);
	for (th_iter i = th_each(args); p->n < 8 && th_next(&i);) p->sleeps[p->n++] = th_sleep(th_int(i.value, 0));
	return th_wait_all(paused, p);
}
